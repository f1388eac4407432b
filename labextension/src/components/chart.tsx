/** Share and utilisation over time, by uPlot, which is fetched when the first chart is drawn. */
import { MutableRefObject, useEffect, useRef } from 'react';
import type uPlot from 'uplot';

import { dayOf, percent, timeOfDay, UNREAD } from '../format';
import { columns } from '../history';
import { IHistory } from '../tokens';
import { useUi } from './context';

const HEIGHT_PX = 180;

interface IChartProps {
  history: IHistory;
  label: string;
  /** Set to what makes a picture of it. */
  picture: MutableRefObject<(() => Promise<Blob | null>) | null>;
}

function color(node: Element, name: string): string {
  return getComputedStyle(node).getPropertyValue(name).trim() || 'currentcolor';
}

function options(node: HTMLElement, width: number, names: [string, string, string]): uPlot.Options {
  const line = color(node, '--jp-border-color2');
  const text = color(node, '--jp-ui-font-color1');
  const axis = {
    font: `11px ${color(node, '--jp-ui-font-family')}`,
    stroke: text,
    grid: { stroke: line, width: 1 },
    ticks: { stroke: line, width: 1 }
  };
  const value = (_: unknown, fraction: number | null): string => percent(fraction);
  return {
    width,
    height: HEIGHT_PX,
    scales: { y: { range: [0, 1] } }, // never scaled by itself: a low line is low
    axes: [
      { ...axis, values: (_, ticks, __, ___, step) => ticks.map(tick => timeLabel(tick, step)) },
      { ...axis, size: 52, values: (_, ticks) => ticks.map(percent) }
    ],
    series: [
      { value: (_, at) => (at === null ? UNREAD : timeOfDay(1000 * at)), label: names[2] },
      { label: names[0], stroke: color(node, '--jp-brand-color1'), width: 2, value },
      { label: names[1], stroke: text, width: 1.5, dash: [4, 3], value }
    ]
  };
}

const DAY_S = 86400;

/** The time of day, or the day where the marks are as far apart as that. */
function timeLabel(tick: number, step: number): string {
  return step < DAY_S ? timeOfDay(1000 * tick) : dayOf(1000 * tick);
}

/** The chart's canvas on the page's background, so that it can be read wherever it is put. */
function pictureOf(canvas: HTMLCanvasElement, background: string): Promise<Blob | null> {
  const copy = document.createElement('canvas');
  copy.width = canvas.width;
  copy.height = canvas.height;
  const context = copy.getContext('2d');
  if (context) {
    context.fillStyle = background;
    context.fillRect(0, 0, copy.width, copy.height);
    context.drawImage(canvas, 0, 0);
  }
  return new Promise(done => copy.toBlob(done, 'image/png'));
}

export function Chart({ history, label, picture }: IChartProps): JSX.Element {
  const { trans } = useUi();
  const ref = useRef<HTMLDivElement>(null);
  const theme = document.body.dataset.jpThemeName; // a canvas does not change its colours by itself
  useEffect(() => {
    const node = ref.current;
    let plot: uPlot | null = null;
    let gone = false;
    const sizes = new ResizeObserver(([entry]) =>
      plot?.setSize({ width: Math.floor(entry.contentRect.width), height: HEIGHT_PX })
    );
    void import('uplot').then(({ default: UPlot }) => {
      if (node && !gone) {
        const names: [string, string, string] = [
          trans.__('Share'),
          trans.__('Busy'),
          trans.__('Time')
        ];
        plot = new UPlot(options(node, node.clientWidth, names), columns(history), node);
        picture.current = () =>
          plot
            ? pictureOf(plot.ctx.canvas, color(node, '--jp-layout-color1'))
            : Promise.resolve(null);
        sizes.observe(node);
        node.dataset.theme = theme ?? '';
      }
    });
    return () => {
      gone = true;
      sizes.disconnect();
      plot?.destroy();
      picture.current = null;
    };
  }, [history, picture, theme, trans]);
  return <div ref={ref} className="jp-GPUShare-chart" role="img" aria-label={label} dir="ltr" />;
}
