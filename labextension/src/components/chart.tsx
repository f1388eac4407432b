/** One or two lines over time, by uPlot, which is fetched when the first chart is drawn. */
import { MutableRefObject, useEffect, useRef } from 'react';
import type uPlot from 'uplot';

import { clockTime, dayOf, timeOfDay, UNREAD } from '../format';
import { Columns } from '../readings';
import { useUi } from './context';

export type Picture = MutableRefObject<(() => Promise<Blob | null>) | null>;

interface IChartProps {
  columns: Columns;
  /** The names of the lines: the first drawn whole, the second dashed. */
  names: readonly string[];
  format(value: number | null): string;
  /** Where the axis ends; null: a little above the highest value. It begins at 0: a low line is low. */
  top: number | null;
  heightPx?: number;
  label: string;
  /** Set to what makes a picture of it. */
  picture: Picture;
  /** Charts of one name show the same moment under the pointer. */
  together?: string;
}

function color(node: Element, name: string): string {
  return getComputedStyle(node).getPropertyValue(name).trim() || 'currentcolor';
}

interface IDrawn extends Pick<IChartProps, 'names' | 'format' | 'top' | 'together'> {
  time: string;
  width: number;
  height: number;
}

function options(node: HTMLElement, drawn: IDrawn): uPlot.Options {
  const { names, format, top, together, time, width, height } = drawn;
  const line = color(node, '--jp-border-color2');
  const text = color(node, '--jp-ui-font-color1');
  const axis = {
    font: `11px ${color(node, '--jp-ui-font-family')}`,
    stroke: text,
    grid: { stroke: line, width: 1 },
    ticks: { stroke: line, width: 1 }
  };
  const strokes = [
    { stroke: color(node, '--jp-brand-color1'), width: 2 },
    { stroke: text, width: 1.5, dash: [4, 3] }
  ];
  const value = (_: unknown, read: number | null): string => format(read);
  return {
    width,
    height,
    cursor: together === undefined ? {} : { sync: { key: together } },
    scales: {
      x: { range: (_, from, to) => [Math.min(from, to - LEAST_S), to] },
      y: { range: (_, __, most) => [0, top ?? Math.max(1, (most ?? 0) * 1.05)] }
    },
    axes: [
      {
        ...axis,
        incrs: STEPS_S,
        values: (_, ticks, __, ___, step) => ticks.map(tick => timeLabel(tick, step))
      },
      { ...axis, size: 62, values: (_, ticks) => unlike(ticks.map(format)) }
    ],
    series: [
      { value: (_, at) => (at === null ? UNREAD : timeOfDay(1000 * at)), label: time },
      ...names.map((name, index) => ({ label: name, value, ...strokes[index] }))
    ]
  };
}

const HOUR_S = 3600;
const DAY_S = 86400;
const LEAST_S = 60; // the first readings lie at its end: an axis of no length has no marks

/** Between two marks of time: none finer than what the clock shows. */
const STEPS_S = [
  ...[1, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800],
  ...[1, 2, 3, 4, 6, 8, 12].map(hours => hours * HOUR_S),
  ...[1, 2, 3, 5, 7, 10, 15, 30, 90, 365].map(days => days * DAY_S)
];

/** What reads like the mark before it, as values are rounded, is left out. */
function unlike(labels: string[]): string[] {
  return labels.map((label, index) => (label === labels[index - 1] ? '' : label));
}

/** The time of day, with seconds or as the day where the marks stand so close or far. */
function timeLabel(tick: number, step: number): string {
  if (step < 60) {
    return clockTime(1000 * tick);
  }
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

/** New values go into the chart that stands; what a person has zoomed into stays in sight. */
function fill(plot: uPlot, columns: Columns): void {
  const before = plot.data[0];
  const { min, max } = plot.scales.x;
  const whole =
    before.length === 0 || ((min ?? 0) <= before[0] && max === before[before.length - 1]);
  plot.setData(columns, whole);
  if (!whole) {
    plot.redraw();
  }
}

export function Chart(props: IChartProps): JSX.Element {
  const { columns, names, format, top, heightPx: height = 180, label, picture, together } = props;
  const { trans } = useUi();
  const ref = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const latest = useRef(columns);
  latest.current = columns;
  const theme = document.body.dataset.jpThemeName; // a canvas does not change its colours by itself
  const named = names.join('\n');
  useEffect(() => {
    const node = ref.current;
    let gone = false;
    const sizes = new ResizeObserver(([entry]) =>
      plot.current?.setSize({ width: Math.floor(entry.contentRect.width), height })
    );
    void import('uplot').then(({ default: UPlot }) => {
      if (node && !gone) {
        const [time, width] = [trans.__('Time'), node.clientWidth];
        const drawn = { names: named.split('\n'), format, top, together, time, width, height };
        const made = new UPlot(options(node, drawn), latest.current, node);
        plot.current = made;
        picture.current = () => pictureOf(made.ctx.canvas, color(node, '--jp-layout-color1'));
        sizes.observe(node);
        node.dataset.theme = theme ?? '';
      }
    });
    return () => {
      gone = true;
      sizes.disconnect();
      plot.current?.destroy();
      plot.current = null;
      picture.current = null;
    };
  }, [named, format, top, together, height, picture, theme, trans]);
  useEffect(() => {
    if (plot.current) {
      fill(plot.current, columns);
    }
  }, [columns]);
  return <div ref={ref} className="jp-GPUShare-chart" role="img" aria-label={label} dir="ltr" />;
}
