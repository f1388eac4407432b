/** The whole panel: my notebooks, then the servers; and what stands there when there is nothing to show. */
import { ReactNode, useId, useMemo, useRef, useState } from 'react';

import { devices as amount, timeOfDay } from '../format';
import { holds, inOrder, totals } from '../order';
import { DegradedCode, ISession } from '../tokens';
import { IMoment } from '../view';
import { Card } from './card';
import { useMoment, useNow, useUi } from './context';
import { Glyph, Icon, IconButton, Rich } from './marks';
import { Rows } from './row';
import { Servers } from './servers';

export function Overview(): JSX.Element {
  const { snapshot, trans } = useUi();
  return (
    <>
      <Head />
      <Strips />
      {snapshot.kind === 'absent' ? (
        <Note text={trans.__('This server does not offer GPU sharing.')} />
      ) : snapshot.status ? (
        <Known />
      ) : (
        <>
          <Section title={trans.__('My notebooks')}>
            {snapshot.kind === 'loading' && (
              <Note text={trans.__('Asking the GPU service…')} late />
            )}
          </Section>
          <Section title={trans.__('Servers')} />
        </>
      )}
    </>
  );
}

function Head(): JSX.Element {
  const { trans, snapshot, focused, openSettings, openUsage, openHelp } = useUi();
  const simulated = snapshot.status?.simulated ?? false;
  const state = snapshot.status?.sessions[focused ?? '']?.state;
  const page =
    state === 'waiting'
      ? 'waiting'
      : state === 'parked' || state === 'parking' || state === 'resuming'
        ? 'parked'
        : 'panel';
  return (
    <div className="jp-GPUShare-head">
      <h1>{trans.__('GPU share')}</h1>
      {simulated && (
        <span
          className="jp-GPUShare-chip jp-GPUShare-simulated"
          title={trans.__('Simulated GPUs. Times and memory are computed, not measured.')}
        >
          {trans.__('simulated')}
        </span>
      )}
      {openUsage && (
        <IconButton icon="chart" label={trans.__('Usage and history')} onClick={openUsage} />
      )}
      {openHelp && (
        <IconButton icon="help" label={trans.__('Help')} onClick={() => openHelp(page)} />
      )}
      {openSettings && (
        <IconButton icon="settings" label={trans.__('Settings')} onClick={openSettings} />
      )}
    </div>
  );
}

/** What does not work just now, one strip each; said once, whatever it touches. */
export function Strips(): JSX.Element | null {
  const { trans, snapshot, retry, runCheck } = useUi();
  const now = useNow();
  if (snapshot.kind === 'gone') {
    const wait = Math.max(1, Math.ceil(((snapshot.nextTry ?? now) - now) / 1000));
    return (
      <div className="jp-GPUShare-notice" role="status">
        <Glyph look="warned" />
        <p>
          <Rich
            text={trans.__('**No answer from the GPU service.** Running notebooks are untouched.')}
          />{' '}
          <span aria-live="off">{trans.__('Next try in %1 s.', wait)}</span>{' '}
          <button type="button" className="jp-GPUShare-link" data-action="retry" onClick={retry}>
            {trans.__('Try now')}
          </button>
        </p>
      </div>
    );
  }
  const texts: Record<DegradedCode, string> = {
    broker: trans.__('**The GPU service does not answer.** Running notebooks are untouched.'),
    ledger: trans.__(
      '**Usage is not being recorded** just now: the database does not answer. Sharing goes on as usual.'
    ),
    disk: trans.__(
      '**Usage is not being recorded** just now: the disk does not take it. Sharing goes on as usual.'
    ),
    bus: trans.__('**News from the servers do not arrive.** Numbers are the last known.'),
    nvml: trans.__('**GPU readings stopped.** Nothing is granted or taken until they are back.')
  };
  const codes = new Map(
    (snapshot.status?.degraded ?? []).map(({ code, message }) => [code, message])
  );
  return codes.size === 0 ? null : (
    <>
      {[...codes].map(([code, message]) => (
        <div
          key={code}
          className="jp-GPUShare-notice"
          role="status"
          data-degraded={code}
          title={message}
        >
          <Glyph look="warned" />
          <p>
            <Rich text={texts[code] ?? message} />
            {code === 'nvml' && runCheck && (
              <>
                {' '}
                <button type="button" className="jp-GPUShare-link" onClick={runCheck}>
                  {trans.__('Run a check')}
                </button>
              </>
            )}
          </p>
        </div>
      ))}
    </>
  );
}

function Known(): JSX.Element {
  const { trans, focused, snapshot } = useUi();
  const moment = useMoment();
  const sessions = useOrder(moment, true);
  const front = sessions.find(session => session.id === focused);
  const rest = sessions.filter(session => session !== front);
  const others = useOrder(moment, false);
  const asOf =
    snapshot.kind === 'gone' && snapshot.at !== null
      ? trans.__('as of %1', timeOfDay(snapshot.at))
      : null;
  return (
    <>
      <Section title={trans.__('My notebooks')} summary={asOf ?? heldSummary(sessions, trans)}>
        {front && <Card session={front} />}
        {rest.length > 0 && <Rows sessions={rest} label={trans.__('My other notebooks')} />}
        {sessions.length === 0 && (
          <Note
            text={trans.__('No notebook is running. Start one and it gets a GPU when it needs it.')}
          />
        )}
      </Section>
      {moment.status.admin && others.length > 0 && (
        <Section title={trans.__('Of others')} summary={trans.__('admin view')}>
          <Rows sessions={others} label={trans.__('Notebooks of others')} />
        </Section>
      )}
      <Section title={trans.__('Servers')} summary={asOf ?? serverSummary(moment, trans)}>
        {totals(moment.status).devices > 0 ? <Servers /> : <NoDevice />}
      </Section>
    </>
  );
}

/** In order, beginning with the order of before: of thousands, few change their place. */
function useOrder(moment: IMoment, mine: boolean): ISession[] {
  const before = useRef<ISession[]>([]);
  const sessions = useMemo(
    () => inOrder(moment, mine, before.current),
    // eslint-disable-next-line react-hooks/exhaustive-deps -- a warning begins with its message, not between two
    [moment.status, mine]
  );
  before.current = sessions;
  return sessions;
}

type Trans = ReturnType<typeof useUi>['trans'];

function heldSummary(sessions: ISession[], trans: Trans): string {
  const alive = sessions.filter(session => session.state !== 'dead');
  const held = alive.filter(holds).length;
  return alive.length === 0
    ? ''
    : trans._n('%1 of %2 holds a GPU', '%1 of %2 hold a GPU', held, alive.length);
}

function serverSummary({ status }: ReturnType<typeof useMoment>, trans: Trans): string {
  const { devices, free, waiting, silent } = totals(status);
  if (devices === 0) {
    return trans.__('none');
  }
  return [
    trans.__('%1 of %2 free', amount(free), devices),
    waiting > 0 ? trans.__('%1 waiting', waiting) : '',
    silent > 0 ? trans.__('%1 silent', silent) : ''
  ]
    .filter(Boolean)
    .join(' · ');
}

function NoDevice(): JSX.Element {
  const { trans, runCheck } = useUi();
  return (
    <Note text={trans.__('No GPU was found on this machine.')}>
      {' '}
      {runCheck ? (
        <>
          <button type="button" className="jp-GPUShare-link" onClick={runCheck}>
            {trans.__('Run a check')}
          </button>{' '}
          {trans.__('or try simulated GPUs: %1', 'jupyter gpushare demo')}
        </>
      ) : null}
    </Note>
  );
}

function Note({
  text,
  late,
  children
}: {
  text: string;
  late?: boolean;
  children?: ReactNode;
}): JSX.Element {
  return (
    <div className="jp-GPUShare-empty" data-late={late || undefined}>
      <Glyph look="none" />
      <p>
        {text}
        {children}
      </p>
    </div>
  );
}

function Section(props: { title: string; summary?: string; children?: ReactNode }): JSX.Element {
  const { title, summary, children } = props;
  const [open, setOpen] = useState(true);
  const body = useId();
  return (
    <section className="jp-GPUShare-section">
      <h2>
        <button
          type="button"
          aria-expanded={open}
          aria-controls={body}
          onClick={() => setOpen(!open)}
        >
          <Icon name={open ? 'down' : 'right'} />
          <span>{title}</span>
          {summary && <span className="jp-GPUShare-summary">{summary}</span>}
        </button>
      </h2>
      <div id={body} hidden={!open}>
        {children}
      </div>
    </section>
  );
}
