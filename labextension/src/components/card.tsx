/** The notebook in front of you: always open, answers the four questions in order. */
import { KeyboardEvent } from 'react';

import { actionLabel, cardActions } from '../actions';
import { charged, exactSpan, gib, memory, percent, soon } from '../format';
import { appearance, IAppearance, Look, progress } from '../states';
import { ISession } from '../tokens';
import { IMoment, isOneFree, meanOf, running, sumOf } from '../view';
import { ActionButton, MoreButton, useAct } from './actions';
import { QueueLine, ShareBar } from './bars';
import { useMoment, useUi } from './context';
import { actionOf, opensMenu } from './keys';
import { Glyph, Icon, Name, Rich } from './marks';

export function Card({ session }: { session: ISession }): JSX.Element {
  const { trans, snapshot, openMenu, rowKeys } = useUi();
  const gone = snapshot.kind === 'gone';
  const moment = useMoment();
  const [answer, ask] = useAct(session.id);
  const texts = appearance(session, moment, trans);
  const onKeyDown = (event: KeyboardEvent<HTMLElement>): void => {
    const action = rowKeys && !gone ? actionOf(event, texts.look, session) : null;
    if (action) {
      ask(action);
    } else if (opensMenu(event)) {
      openMenu(session, event.currentTarget);
    } else {
      return;
    }
    event.preventDefault();
  };
  const actions = cardActions(
    texts.look,
    session,
    texts.look === 'waiting' && isOneFree(moment.status, session)
  );
  return (
    <article
      className="jp-GPUShare-card"
      data-session={session.id}
      data-state={session.state}
      data-look={texts.look}
      data-stale={gone || undefined}
      tabIndex={0}
      aria-label={trans.__('%1, the notebook in front of you', session.label)}
      onKeyDown={onKeyDown}
    >
      <div className="jp-GPUShare-title">
        <Glyph look={texts.look} label={texts.label} />
        <Name label={session.label} title={session.path ?? session.label} />
        <MoreButton session={session} />
      </div>
      <p className="jp-GPUShare-say">
        <Rich text={gone ? trans.__('Last seen: %1', texts.sentence) : texts.sentence} />
      </p>
      <Figure session={session} texts={texts} />
      <Facts session={session} look={texts.look} />
      {texts.next && <Next session={session} texts={texts} />}
      {answer.kind === 'refused' && (
        <p className="jp-GPUShare-refusal" role="status">
          {answer.message}
        </p>
      )}
      {actions.length > 0 && (
        <div className="jp-GPUShare-actions">
          {actions.map(action => (
            <ActionButton key={action} action={action} session={session} look={texts.look} />
          ))}
        </div>
      )}
    </article>
  );
}

const WITH_BAR: Look[] = ['bound', 'active', 'idle', 'warned', 'pinned', 'resuming', 'parking'];

/** The bar with the one big number, or the line one stands in. */
function Figure({ session, texts }: { session: ISession; texts: IAppearance }): JSX.Element | null {
  const { trans } = useUi();
  if (texts.look === 'waiting') {
    return (
      <div className="jp-GPUShare-figure">
        <QueueLine session={session} />
        <strong>{texts.figure}</strong>
      </div>
    );
  }
  if (!WITH_BAR.includes(texts.look)) {
    return null;
  }
  const moving = texts.look === 'resuming' || texts.look === 'parking';
  const left = session.next?.in_s ?? null;
  const [first, last] = moving
    ? [
        session.parked_bytes === null ? '' : trans.__('%1 to move', memory(session.parked_bytes)),
        left === null ? '' : trans.__('%1 left', soon(left, trans))
      ]
    : [
        trans.__('%1 guaranteed', percent(session.guarantee)),
        session.limit > session.guarantee ? trans.__('may grow to %1', percent(session.limit)) : ''
      ];
  return (
    <>
      <div className="jp-GPUShare-figure">
        <ShareBar session={session} />
        {texts.figure && <strong>{texts.figure}</strong>}
      </div>
      <div className="jp-GPUShare-scale">
        <span>{first}</span>
        <span>{last}</span>
      </div>
    </>
  );
}

/** At most three figures; which ones depends on the state. */
function facts(
  session: ISession,
  look: Look,
  moment: IMoment,
  say: ReturnType<typeof useUi>['trans']
): [string, string][] {
  const bytes = sumOf(session, part => part.memory_used);
  const used: [string, string] = [
    say.__('GPU memory'),
    bytes === 0 ? say.__('nothing yet') : memory(bytes)
  ];
  const cost: [string, string] = [say.__('Charged'), charged(session.charged_gpu_s)];
  const span = (value: number | null): string => (value === null ? '–' : exactSpan(value, say));
  switch (look) {
    case 'waiting': {
      const { gpus, memory: least } = session.demand;
      const asked =
        gpus < 1 ? say.__('%1 of a GPU', percent(gpus)) : say._n('%1 GPU', '%1 GPUs', gpus);
      return [
        [say.__('Asked for'), least ? `${asked}, ${memory(least)}` : asked],
        [say.__('Waiting'), span(running(session, 'waiting_s', moment))],
        cost
      ];
    }
    case 'bound':
    case 'active':
      return [used, [say.__('Busy'), percent(meanOf(session, part => part.utilization))], cost];
    case 'idle':
    case 'warned':
    case 'pinned':
      return [used, [say.__('Idle'), span(running(session, 'idle_s', moment))], cost];
    case 'resuming':
    case 'parking':
      return progress(session) === null
        ? [cost]
        : [
            [say.__('GPU memory'), `${gib(session.moved_bytes)} / ${gib(session.parked_bytes)}`],
            cost
          ];
    case 'lost':
    case 'none':
    case 'dead':
    case 'parked':
    case 'refused':
      return session.charged_gpu_s ? [cost] : [];
  }
}

function Facts({ session, look }: { session: ISession; look: Look }): JSX.Element | null {
  const { trans } = useUi();
  const list = facts(session, look, useMoment(), trans);
  return list.length === 0 ? null : (
    <dl className="jp-GPUShare-facts">
      {list.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd title={value === '–' ? trans.__('not read') : undefined}>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

const EXPLAINED: Look[] = [
  'waiting',
  'active',
  'idle',
  'bound',
  'pinned',
  'warned',
  'resuming',
  'parked'
];

function Next({ session, texts }: { session: ISession; texts: IAppearance }): JSX.Element {
  const { trans, act } = useUi();
  const why =
    texts.look === 'resuming' || texts.look === 'parked'
      ? trans.__('Why was it parked?')
      : texts.look === 'idle' || texts.look === 'warned'
        ? trans.__('Why?')
        : actionLabel('why', texts.look, trans);
  return (
    <p className="jp-GPUShare-next">
      <Icon name="arrow" />
      <span>
        {texts.next}{' '}
        {EXPLAINED.includes(texts.look) && (
          <button
            type="button"
            className="jp-GPUShare-link"
            data-action="why"
            onClick={() => void act('why', session.id)}
          >
            {why}
          </button>
        )}
      </span>
    </p>
  );
}
