/** What the hub's page is made of beside the panel's own components: figures, tables, boxes. */
import { ReactNode, useId } from 'react';

import { Sparkline } from '../components/bars';
import { Glyph } from '../components/marks';
import { useUi } from '../components/context';
import { span } from '../format';
import { Look } from '../states';
import { ITrend } from './pressure';

interface IFigureProps {
  look: Look;
  name: string;
  value: string;
  /** What the value is of. */
  of?: string;
  /** The line below. */
  note?: string;
  trend?: ITrend;
  mine?: boolean;
}

/** One figure, large, with its last hours below. */
export function FigureTile(props: IFigureProps): JSX.Element {
  const { look, name, value, of, note, trend, mine = false } = props;
  const { trans } = useUi();
  return (
    <div className="jp-GPUShare-figureTile" role="group" aria-label={name} data-figure={look}>
      <h2>
        <Glyph look={look} />
        {name}
      </h2>
      <p className="jp-GPUShare-large">
        <strong>{value}</strong> {of && <span>{of}</span>}
      </p>
      {trend && (
        <Sparkline
          points={trend.points}
          mine={mine}
          label={trans.__('%1 over the last %2, now %3', name, span(trend.span_s, trans), value)}
        />
      )}
      <p className="jp-GPUShare-below" title={note}>
        {note}
      </p>
    </div>
  );
}

interface IBoxProps {
  title: string;
  aside?: ReactNode;
  /** For tests and styles. */
  name: string;
  children?: ReactNode;
}

export function Box({ title, aside, name, children }: IBoxProps): JSX.Element {
  const id = useId();
  return (
    <section className="jp-GPUShare-box" aria-labelledby={id} data-box={name}>
      <header>
        <h2 id={id}>{title}</h2>
        {aside && <span className="jp-GPUShare-summary">{aside}</span>}
      </header>
      {children}
    </section>
  );
}

interface IColumn {
  name: string;
  /** Part of the width, as CSS says it; without one, what is left. */
  width?: string;
  number?: boolean;
  /** Its heading is read out only. */
  unseen?: boolean;
}

interface ITableProps {
  columns: IColumn[];
  /** Each row with its key; as many cells as columns. */
  rows: [string, ReactNode[]][];
  label: string;
}

/** A plain table. On a narrow page it scrolls by itself, and so can be focused. */
export function Table({ columns, rows, label }: ITableProps): JSX.Element {
  return (
    <div className="jp-GPUShare-scroll" role="region" aria-label={label} tabIndex={0}>
      <table>
        <colgroup>
          {columns.map(({ name, width }) => (
            <col key={name} style={width ? { inlineSize: width } : undefined} />
          ))}
        </colgroup>
        <thead>
          <tr>
            {columns.map(({ name, number, unseen }) => (
              <th key={name} scope="col" data-number={number || undefined}>
                {unseen ? <span className="jp-GPUShare-unseen">{name}</span> : name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map(([key, cells]) => (
            <tr key={key} data-row={key}>
              {cells.map((cell, index) => (
                <td
                  key={columns[index].name}
                  data-number={columns[index].number || undefined}
                  title={typeof cell === 'string' ? cell : undefined}
                >
                  {cell}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
