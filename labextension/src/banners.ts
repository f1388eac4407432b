/** Which banner, if any, stands above a notebook. Pure; the words are those of the table of messages. */
import { TranslationBundle } from '@jupyterlab/translation';

import { Action, actionLabel } from './actions';
import { about, clock, gib, memory, ordinal, soon, span } from './format';
import { appearance, Look, nextOf, progress, startedWithout, stops } from './states';
import { ISession } from './tokens';
import { IMoment, running, whereabouts } from './view';

export type BannerKind =
  | 'lost'
  | 'reclaim'
  | 'restart'
  | 'refused'
  | 'waiting'
  | 'resuming'
  | 'none'
  | 'parked'
  | 'moved'
  | 'degraded';

export interface IBanner {
  kind: BannerKind;
  look: Look;
  tone: 'mine' | 'info' | 'warn' | 'bad' | 'good' | 'plain';
  /** Bold parts between two asterisks. */
  text: string;
  /** The first is the primary one where `urgent`. */
  /** `stay`: nothing is asked for, the banner leaves. */
  actions: { action: Action | 'retry' | 'stay'; label: string }[];
  urgent?: boolean;
  /** Fraction of a determinate line along the lower edge. */
  progress?: number | null;
  /** False: it leaves by itself and cannot be closed. */
  closable?: boolean;
}

/** What just happened; told for a few seconds. `back`: the service answers again. */
export type Happening = 'resumed' | 'moved' | 'back' | null;

const SHORT_NOTICE_S = 10; // a shorter notice of parking shows in row and toolbar only
const PATIENCE_S = 2;

/** The change between two looks at the same session that is worth a word. */
export function happened(before: ISession | undefined, after: ISession): Happening {
  const uuids = (session: ISession): string =>
    session.devices
      .map(part => part.uuid)
      .sort()
      .join(' ');
  if (!before || !['active', 'idle', 'bound'].includes(after.state)) {
    return null;
  }
  if (
    before.devices.length > 0 &&
    before.state !== 'none' &&
    uuids(before) !== uuids(after) &&
    after.devices.length > 0
  ) {
    return ['active', 'idle', 'resuming', 'parking'].includes(before.state) ? 'moved' : null;
  }
  return before.state === 'resuming' || before.state === 'parked' ? 'resumed' : null;
}

export function bannerOf(
  session: ISession,
  happening: Happening,
  moment: IMoment,
  trans: TranslationBundle
): IBanner | null {
  const { look } = appearance(session, moment, trans);
  const { snapshot, status, now } = moment;
  const buttons = (...actions: Action[]): IBanner['actions'] =>
    actions.map(action => ({ action, label: actionLabel(action, look, trans) }));
  const names = whereabouts(status, session)?.names ?? trans.__('The GPU');
  if (look === 'lost') {
    return {
      kind: 'lost',
      look,
      tone: 'bad',
      text: trans.__(
        '**%1 stopped answering.** Its memory is lost; the kernel and what it holds in RAM live on.',
        names
      ),
      actions: buttons('restart', 'what-is-lost'),
      urgent: true
    };
  }
  if (look === 'warned' && (stops(session) || status.warn_before_s >= SHORT_NOTICE_S)) {
    return reclaim(session, moment, trans);
  }
  if (session.next?.code === 'restart_ready') {
    return {
      kind: 'restart',
      look,
      tone: 'warn',
      text: trans.__(
        '**Needs a kernel restart.** %1 Its variables would be lost.',
        nextOf(session, trans)
      ),
      actions: [
        {
          action: 'restart',
          label: trans._n(
            'Restart with %1 GPU…',
            'Restart with %1 GPUs…',
            Math.ceil(session.demand.gpus)
          )
        },
        { action: 'let-go', label: trans.__('Leave it') }
      ]
    };
  }
  if (session.next?.code === 'refused') {
    return {
      kind: 'refused',
      look: 'refused',
      tone: 'plain',
      text: session.message.replace(/^[^.]+\./, '**$&**'),
      actions: buttons('ask-for-more')
    };
  }
  if (startedWithout(session)) {
    return {
      kind: 'none',
      look: 'none',
      tone: 'plain',
      text: trans.__(
        '**Started without a GPU.** None was free in time. Your place in line is kept. %1',
        nextOf(session, trans)
      ),
      actions: [
        { action: 'stay', label: trans.__('Take it when free') },
        { action: 'let-go', label: trans.__('Stay without') }
      ]
    };
  }
  if (look === 'waiting' && (running(session, 'waiting_s', moment) ?? 0) >= PATIENCE_S) {
    const eta = about(running(session, 'eta_s', moment), trans);
    const nth =
      session.queue_position === null
        ? ''
        : trans.__(', %1 in line', ordinal(session.queue_position, trans));
    return {
      kind: 'waiting',
      look,
      tone: 'info',
      text: trans.__('**Waiting for a GPU**%1, %2. The cell starts by itself.', nth, eta),
      actions: buttons('let-go', 'interrupt')
    };
  }
  if (look === 'resuming') {
    return resuming(session, trans);
  }
  if (look === 'parked' && session.queue_position !== null) {
    return {
      kind: 'resuming',
      look,
      tone: 'mine',
      text: trans.__(
        '**Coming back is in line**, %1, %2: the memory must be free first. Nothing is lost.',
        ordinal(session.queue_position, trans),
        about(running(session, 'eta_s', moment), trans)
      ),
      actions: []
    };
  }
  if (look === 'parked') {
    return {
      kind: 'parked',
      look,
      tone: 'mine',
      text: trans.__(
        '**Parked.** %1 of GPU memory rest in host memory. %2',
        memory(session.parked_bytes),
        appearance(session, moment, trans).next
      ),
      actions: buttons('bring-back')
    };
  }
  if (happening === 'back' && snapshot.kind === 'ready') {
    return {
      kind: 'degraded',
      look: 'active',
      tone: 'good',
      text: trans.__('**The GPU service is back.**'),
      actions: []
    };
  }
  if (happening && happening !== 'back') {
    const text =
      happening === 'moved'
        ? trans.__('**Moved to %1.** Nothing was lost.', names)
        : trans.__('**Back on %1.** Nothing was lost.', names);
    return {
      kind: 'moved',
      look: 'active',
      tone: 'good',
      text,
      actions: happening === 'moved' ? [{ action: 'why', label: trans.__('Why?') }] : []
    };
  }
  if (snapshot.kind === 'gone') {
    const wait = Math.max(1, Math.ceil(((snapshot.nextTry ?? now) - now) / 1000));
    return {
      kind: 'degraded',
      look: 'warned',
      tone: 'warn',
      text: trans.__(
        '**The GPU service does not answer.** This notebook is untouched. Next try in %1 s.',
        wait
      ),
      actions: [{ action: 'retry', label: trans.__('Try now') }]
    };
  }
  return silent(session, moment, trans);
}

/** The server that runs it has not been heard of. */
function silent(session: ISession, { status }: IMoment, trans: TranslationBundle): IBanner | null {
  const server = status.servers[session.server ?? ''];
  return server?.state !== 'down'
    ? null
    : {
        kind: 'degraded',
        look: 'warned',
        tone: 'warn',
        text: trans.__(
          '**%1 has been silent for %2.** Its GPUs are not offered until it answers. Notebooks there keep running.',
          server.name,
          span(server.age_s ?? 0, trans)
        ),
        actions: []
      };
}

function reclaim(session: ISession, moment: IMoment, trans: TranslationBundle): IBanner {
  const left = running(session, 'reclaim_in_s', moment) ?? 0;
  const stop = stops(session);
  return {
    kind: 'reclaim',
    look: 'warned',
    tone: 'warn',
    text: stop
      ? trans.__(
          '**Someone is waiting.** This kernel is idle and will be stopped in **%1**. Its variables are lost then.',
          clock(left)
        )
      : session.next?.code === 'unbind'
        ? trans.__(
            '**Someone is waiting.** This GPU is idle and will be given on in **%1**. Nothing of yours is on it.',
            clock(left)
          )
        : trans.__(
            '**Someone is waiting.** This GPU is idle and will be parked in **%1**. Your variables stay.',
            clock(left)
          ),
    actions: [
      { action: 'keep', label: trans.__('Keep 1 h') },
      { action: 'let-go', label: trans.__('Let go now') }
    ],
    urgent: true,
    progress: left / (stop ? moment.status.stop_warn_s : moment.status.warn_before_s)
  };
}

function resuming(session: ISession, trans: TranslationBundle): IBanner {
  const done = progress(session);
  const left = session.next?.in_s ?? null;
  const moved = trans.__('%1 of %2 GiB', gib(session.moved_bytes), gib(session.parked_bytes));
  const rest = left === null ? '' : trans.__(', %1 left', soon(left, trans));
  return {
    kind: 'resuming',
    look: 'resuming',
    tone: 'mine',
    text: trans.__(
      '**Coming back.** %1Your cell starts right after.',
      done === null ? '' : `${moved}${rest}. `
    ),
    actions: [],
    progress: done,
    closable: false
  };
}
