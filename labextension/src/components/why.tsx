/** Why a session is where it is: what counted, and what else was possible. */
import { percent, span, UNREAD } from '../format';
import { lookOf } from '../states';
import { ISession, ITerm, IWhy } from '../tokens';
import { deviceName, IMoment, place } from '../view';
import { useMoment, useUi } from './context';
import { Glyph, Name, vars } from './marks';

export function Why({ session, why }: { session: ISession; why: IWhy }): JSX.Element {
  const { trans } = useUi();
  const moment = useMoment();
  const total = why.fitness ?? why.terms.reduce((sum, term) => sum + (weighed(term) ?? 0), 0);
  const chosen = why.device ?? session.devices[0]?.uuid;
  return (
    <div className="jp-GPUShare-view" data-session={session.id}>
      <div className="jp-GPUShare-title">
        <Glyph look={lookOf(session, moment)} />
        <Name label={session.label} />
      </div>
      <h1>
        {chosen
          ? trans.__('%1 was chosen.', named(chosen, moment))
          : trans.__('No GPU was chosen.')}
      </h1>
      <p className="jp-GPUShare-text">{kindSentence(session, trans)}</p>
      {why.terms.length > 0 && (
        <>
          <h2>{trans.__('What counted')}</h2>
          <div className="jp-GPUShare-terms">
            {why.terms.map(term => (
              <Term key={term.name} term={term} most={most(why.terms)} />
            ))}
            <b>{trans.__('Fitness')}</b>
            <span />
            <span className="jp-GPUShare-value">{signed(total).replace(/^\+/, '')}</span>
            <span />
          </div>
        </>
      )}
      {why.alternatives.length > 0 && (
        <>
          <h2>{trans.__('What else was possible')}</h2>
          <table>
            <thead>
              <tr>
                <th scope="col">{trans.__('GPU')}</th>
                <th scope="col">{trans.__('Fitness')}</th>
                <th scope="col">{trans.__('What decided')}</th>
              </tr>
            </thead>
            <tbody>
              {why.alternatives.map(other => (
                <tr key={other.device} data-device={other.device}>
                  <td>{named(other.device, moment)}</td>
                  <td>{other.fitness === null ? UNREAD : other.fitness.toFixed(2)}</td>
                  <td>{other.text}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </>
      )}
      <Decided list={(why.decided ?? []).filter(decision => decision.text !== '')} />
    </div>
  );
}

const MOST_DECISIONS = 10;

function Decided({ list }: { list: { text: string; ago_s: number }[] }): JSX.Element | null {
  const { trans } = useUi();
  return list.length === 0 ? null : (
    <>
      <h2>{trans.__('What happened')}</h2>
      <table>
        <tbody>
          {list.slice(0, MOST_DECISIONS).map(({ text, ago_s: ago }, index) => (
            <tr key={index}>
              <td className="jp-GPUShare-aside">{trans.__('%1 ago', span(ago, trans))}</td>
              <td>{text}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </>
  );
}

function named(uuid: string, { status }: IMoment): string {
  const found = place(status, uuid);
  return found ? deviceName(status, found) : uuid;
}

/** What a term adds to the fitness; null where its value was not known. */
function weighed(term: ITerm): number | null {
  return term.value === null ? null : term.weight * term.value;
}

function most(terms: ITerm[]): number {
  return Math.max(0.01, ...terms.map(term => Math.abs(weighed(term) ?? 0)));
}

function signed(value: number | null): string {
  return value === null ? UNREAD : `${value < 0 ? '−' : '+'}${Math.abs(value).toFixed(2)}`;
}

function Term({ term, most }: { term: ITerm; most: number }): JSX.Element {
  const { trans } = useUi();
  const names: Record<string, string> = {
    compute: trans.__('Free compute'),
    data: trans.__('Free bandwidth'),
    locality: trans.__('Close to data'),
    stability: trans.__('Steadiness'),
    thermal: trans.__('Temperature'),
    energy: trans.__('Energy'),
    fragmentation: trans.__('Leaves gaps')
  };
  const value = weighed(term) ?? 0;
  return (
    <>
      <span>{names[term.name] ?? term.name}</span>
      <span className="jp-GPUShare-term" data-against={value < 0 || undefined} aria-hidden="true">
        <span style={vars({ now: Math.abs(value) / most })} />
      </span>
      <span className="jp-GPUShare-value" title={trans.__('weight %1', percent(term.weight))}>
        {signed(weighed(term))}
      </span>
      <span className="jp-GPUShare-text">{term.text}</span>
    </>
  );
}

function kindSentence(session: ISession, trans: ReturnType<typeof useUi>['trans']): string {
  switch (session.kind) {
    case 'compute':
      return trans.__('Your notebook mostly computes, so free compute counts most.');
    case 'data':
      return trans.__('Your notebook mostly moves data, so free memory bandwidth counts most.');
    case 'mixed':
      return trans.__('Your notebook computes and moves data, so both count.');
    default:
      return trans.__(
        'It is not known yet what your notebook needs most; its first cells will tell.'
      );
  }
}
