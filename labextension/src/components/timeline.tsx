/** What happened to a session: a band of its states, share and utilisation over time, and each decision. */
import { useMemo, useRef } from 'react';

import { clockTime, percent, span } from '../format';
import { columns, IStretch, seriesCsv, stretches } from '../history';
import { reasonText } from '../reasons';
import { IDecided, IHistory, ISession, SessionState } from '../tokens';
import { Chart, Picture } from './chart';
import { useNow, useUi } from './context';
import { fileOf, SaveCsv, SavePng } from './exports';
import { vars } from './marks';

interface ITimelineProps {
  session: ISession;
  decided: readonly IDecided[];
  history: IHistory | null;
}

export function Timeline({ session, decided, history }: ITimelineProps): JSX.Element {
  const { trans, snapshot } = useUi();
  const now = useNow();
  const read = decided.map(one => ({ ...one, text: reasonText(one.why, one.text, trans) }));
  const list = stretches(session, snapshot.states[session.id] ?? [], read, now);
  const told = read.filter(({ text }) => text !== '');
  return (
    <>
      <Band list={list} />
      <h2>{trans.__('Share and use')}</h2>
      <Series history={history} name={session.label} />
      <h2>{trans.__('What happened')}</h2>
      {told.length === 0 ? (
        <p className="jp-GPUShare-text">{trans.__('Nothing was decided for it yet.')}</p>
      ) : (
        <table>
          <tbody>
            {told.map(({ text, ago_s: ago }, index) => (
              <tr key={index}>
                <td className="jp-GPUShare-aside">{trans.__('%1 ago', span(ago, trans))}</td>
                <td>{text}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </>
  );
}

function Band({ list }: { list: IStretch[] }): JSX.Element | null {
  const { trans } = useUi();
  const words: Record<SessionState, string> = {
    waiting: trans.__('Waiting'),
    bound: trans.__('Ready'),
    active: trans.__('Computing'),
    idle: trans.__('Idle'),
    parking: trans.__('Being parked'),
    parked: trans.__('Parked'),
    resuming: trans.__('Coming back'),
    none: trans.__('No GPU'),
    lost: trans.__('GPU lost'),
    dead: trans.__('Ended')
  };
  if (list.length === 0) {
    return null;
  }
  const begin = list[0].from;
  const whole = Math.max(1, list[list.length - 1].until - begin);
  const text = ({ state, from, until, text: why }: IStretch): string =>
    [`${words[state]}, ${span((until - from) / 1000, trans)}`, why].filter(Boolean).join('. ');
  return (
    <>
      <ol className="jp-GPUShare-band" aria-label={trans.__('States over time')} dir="ltr">
        {list.map(stretch => (
          <li
            key={stretch.from}
            data-state={stretch.state}
            title={text(stretch)}
            style={vars({ part: (stretch.until - stretch.from) / whole })}
          >
            <span className="jp-GPUShare-spoken">{text(stretch)}</span>
            {(stretch.until - stretch.from) / whole > 0.12 && (
              <span aria-hidden="true">{words[stretch.state]}</span>
            )}
          </li>
        ))}
      </ol>
      <p className="jp-GPUShare-scale" dir="ltr">
        <span>{clockTime(begin)}</span>
        <span>{trans.__('now')}</span>
      </p>
    </>
  );
}

/** The chart with its exports; a sentence where there is nothing to draw. */
export function Series({ history, name }: { history: IHistory | null; name: string }): JSX.Element {
  const { trans } = useUi();
  const picture: Picture = useRef(null);
  const drawn = useMemo(() => history && columns(history), [history]);
  if (!history || !drawn) {
    return <p className="jp-GPUShare-text">{trans.__('Asking the GPU service…')}</p>;
  }
  const { series } = history;
  if (series.length === 0) {
    return (
      <p className="jp-GPUShare-text">
        {trans.__('Nothing is recorded yet; usage is summed every five minutes.')}
      </p>
    );
  }
  const last = series[series.length - 1];
  const file = fileOf(name.replace(/\.ipynb$/, ''));
  return (
    <>
      <Chart
        columns={drawn}
        names={[trans.__('Share'), trans.__('Busy')]}
        format={percent}
        top={1}
        picture={picture}
        label={trans.__(
          'Share and utilisation over time, last %1 and %2',
          percent(last.share),
          percent(last.utilization)
        )}
      />
      <div className="jp-GPUShare-actions">
        <SaveCsv file={file} text={() => seriesCsv(history)} />
        <SavePng file={file} picture={picture} />
      </div>
    </>
  );
}
