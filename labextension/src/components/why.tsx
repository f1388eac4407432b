/** Why a session is where it is: what counted, and what else was possible. */
import { modelName, percent, UNREAD } from '../format';
import { appearance, lookOf } from '../states';
import { ISession, ITerm, IWhy } from '../tokens';
import { deviceName, IMoment, place } from '../view';
import { decisiveText } from '../reasons';
import { useMoment, useUi } from './context';
import { Glyph, Name, vars } from './marks';

export function Why({ session, why }: { session: ISession; why: IWhy }): JSX.Element {
  const { trans } = useUi();
  const moment = useMoment();
  const total = why.terms.reduce((sum, term) => sum + (weighed(term) ?? 0), 0);
  const chosen = session.devices[0]?.uuid;
  return (
    <>
      <div className="jp-GPUShare-title">
        <Glyph look={lookOf(session, moment)} />
        <Name label={session.label} />
      </div>
      <h1>{headline(session, chosen, moment, trans)}</h1>
      <p className="jp-GPUShare-text">
        {[lineSentence(session, moment, trans), kindSentence(session, trans)]
          .filter(Boolean)
          .join(' ')}
      </p>
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
                <th scope="col" colSpan={2}>
                  {trans.__('Fitness')}
                </th>
                <th scope="col">{trans.__('What decided')}</th>
              </tr>
            </thead>
            <tbody>
              {chosen && <Choice device={chosen} fitness={total} text={trans.__('chosen')} mine />}
              {why.alternatives
                .filter(other => other.device !== chosen)
                .map(other => (
                  <Choice
                    key={other.device}
                    device={other.device}
                    fitness={other.fitness}
                    text={decisiveText(other.decisive, other.text, trans)}
                  />
                ))}
            </tbody>
          </table>
        </>
      )}
      <Offers session={session} why={why} chosen={chosen} />
    </>
  );
}

interface IChoiceProps {
  device: string;
  fitness: number | null;
  text: string;
  mine?: boolean;
}

function Choice({ device, fitness, text, mine }: IChoiceProps): JSX.Element {
  const { trans } = useUi();
  const moment = useMoment();
  const found = place(moment.status, device);
  return (
    <tr data-device={device} data-mine={mine || undefined}>
      <td>
        <b>{named(device, moment)}</b>{' '}
        <span className="jp-GPUShare-aside">{found && modelName(found.device.model)}</span>
      </td>
      <td>
        {fitness === null ? (
          <span className="jp-GPUShare-text">{trans.__('not possible')}</span>
        ) : (
          <span
            className="jp-GPUShare-sum"
            aria-hidden="true"
            style={vars({ now: Math.min(1, Math.max(0, fitness)) })}
          />
        )}
      </td>
      <td className="jp-GPUShare-value">{fitness === null ? UNREAD : fitness.toFixed(2)}</td>
      <td>{text}</td>
    </tr>
  );
}

/** What can be done about it: the next best device, and the whole as text. */
function Offers({
  session,
  why,
  chosen
}: {
  session: ISession;
  why: IWhy;
  chosen?: string;
}): JSX.Element {
  const { trans, act } = useUi();
  const moment = useMoment();
  return (
    <div className="jp-GPUShare-actions">
      {session.devices.length > 0 && (
        <button
          type="button"
          className="jp-GPUShare-button"
          onClick={() => void act('move', session.id)}
        >
          {trans.__('Move to another GPU…')}
        </button>
      )}
      <button
        type="button"
        className="jp-GPUShare-button"
        onClick={() => void navigator.clipboard?.writeText(asText(session, why, chosen, moment))}
      >
        {trans.__('Copy as text')}
      </button>
    </div>
  );
}

/** The same explanation for a message or a ticket. */
export function asText(
  session: ISession,
  why: IWhy,
  chosen: string | undefined,
  moment: IMoment
): string {
  return [
    `${session.label}: ${chosen ? named(chosen, moment) : '–'}`,
    ...why.terms.map(term => `${term.name} ${signed(weighed(term))} (${term.text})`),
    ...why.alternatives.map(
      other =>
        `${named(other.device, moment)}: ${other.fitness?.toFixed(2) ?? UNREAD}, ${other.text}`
    )
  ].join('\n');
}

type Trans = ReturnType<typeof useUi>['trans'];

function headline(
  session: ISession,
  chosen: string | undefined,
  moment: IMoment,
  trans: Trans
): string {
  if (session.state === 'waiting') {
    return appearance(session, moment, trans).sentence.replaceAll('**', '');
  }
  return chosen
    ? trans.__('%1 was chosen.', named(chosen, moment))
    : trans.__('No GPU was chosen.');
}

/** Who waits before it, which is most of why it still waits; empty where it does not. */
function lineSentence(session: ISession, { status }: IMoment, trans: Trans): string {
  const { queue_position: place, state } = session;
  return state !== 'waiting' || place === null
    ? ''
    : `${trans.__('%1 ahead of you, %2 behind', place - 1, Math.max(0, status.queue.length - place))}.`;
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
  if (value === null) {
    return UNREAD;
  }
  const size = Math.abs(value).toFixed(2);
  return Number(size) === 0 ? size : `${value < 0 ? '−' : '+'}${size}`;
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

function kindSentence(session: ISession, trans: Trans): string {
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
