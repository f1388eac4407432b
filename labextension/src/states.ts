/**
 * What a session's state is called, in every place it is shown: glyph, word in a row, sentence on the card, what
 * happens next, text in the toolbar. One entry for each row of the table of states; pure.
 *
 * Texts may mark a part as bold with two asterisks around it; `components/rich` draws it.
 */
import { TranslationBundle } from '@jupyterlab/translation';

import {
  about,
  clock,
  memory,
  ordinal,
  percent,
  shortModel,
  soon,
  span,
  timeOfDay
} from './format';
import { ISession } from './tokens';
import { IMoment, meanOf, neighbours, place, running, someoneWaits, whereabouts } from './view';

/** The shapes; a state and what is special about it. */
export type Look =
  | 'waiting'
  | 'bound'
  | 'active'
  | 'idle'
  | 'warned'
  | 'pinned'
  | 'parking'
  | 'parked'
  | 'resuming'
  | 'none'
  | 'lost'
  | 'dead'
  | 'refused';

export interface IAppearance {
  look: Look;
  /** The state in a word or two, as the glyph is read out. */
  label: string;
  /** The second line of a row. */
  word: string;
  /** The first line of the card. */
  sentence: string;
  /** What happens next; empty where nothing does. */
  next: string;
  /** The one number: a share, a place in line, progress; empty where there is none. */
  figure: string;
  /** The toolbar item. */
  short: string;
}

type Texts = Omit<IAppearance, 'look'>;

export function lookOf(session: ISession, moment: IMoment): Look {
  if (
    (session.state === 'none' || session.state === 'waiting') &&
    session.next?.code === 'refused'
  ) {
    return 'refused';
  }
  if (session.state !== 'idle') {
    return session.state;
  }
  if (session.pinned_until_s !== null) {
    return 'pinned';
  }
  return isWarned(session, moment) ? 'warned' : 'idle';
}

/** The kernel itself would be stopped, not only parked: what it holds is lost then. */
export function stops(session: ISession): boolean {
  return session.next?.code === 'stop';
}

/** The kernel runs already, without the devices it asked for: taking them later needs a restart. */
export function startedWithout(session: ISession): boolean {
  return session.state === 'waiting' && session.next?.code === 'restart';
}

function isWarned(session: ISession, moment: IMoment): boolean {
  const left = running(session, 'reclaim_in_s', moment);
  const notice = stops(session) ? moment.status.stop_warn_s : moment.status.warn_before_s;
  return left !== null && left <= notice;
}

/** Fraction of the memory already moved while parking or resuming; null where it is not known. */
export function progress(session: ISession): number | null {
  const { moved_bytes: moved, parked_bytes: parked } = session;
  return moved === null || !parked ? null : Math.min(1, moved / parked);
}

export function appearance(
  session: ISession,
  moment: IMoment,
  trans: TranslationBundle
): IAppearance {
  const look = lookOf(session, moment);
  const texts = TEXTS[look](session, moment, trans);
  const next = session.next?.code === 'stopping' ? nextOf(session, trans) : texts.next;
  return { look, ...texts, next };
}

/** What the service says comes next, in the page's language where its code is known. */
export function nextOf({ next, state }: ISession, trans: TranslationBundle): string {
  switch (next?.code) {
    case 'stopping':
      return trans.__('The kernel is being stopped.');
    case 'restart_ready':
      return trans.__('Reserved. Restart the kernel to use it.');
    case 'refused':
      return trans.__('You keep what you have. Ask for less, or for another kind.');
    case 'restart':
      return state === 'waiting'
        ? trans.__('Taking it when it is free needs a kernel restart.')
        : trans.__('Restart on another GPU, or wait: it may come back.');
    default:
      return next?.text ?? '';
  }
}

type Say = (session: ISession, moment: IMoment, trans: TranslationBundle) => Texts;

const TEXTS: Record<Look, Say> = {
  waiting: (session, moment, trans) => {
    const eta = about(running(session, 'eta_s', moment), trans);
    const nth = session.queue_position === null ? '' : ordinal(session.queue_position, trans);
    return {
      label: trans.__('Waiting'),
      word: trans.__('In line · %1', eta),
      sentence: wanted(session, trans),
      next: startedWithout(session)
        ? nextOf(session, trans)
        : trans.__('Starts by itself; your cell waits.'),
      figure: nth,
      short: nth
        ? trans.__('%1 in line · %2', nth, eta.replace(/^\D+(?=\d)/, ''))
        : trans.__('In line')
    };
  },
  bound: (session, moment, trans) => {
    const held = session.devices.some(part => part.share > 0); // a binding alone holds nothing
    const { names, model } = where(session, moment, trans);
    return {
      label: trans.__('Ready'),
      word: trans.__('Ready on %1 · nothing on it yet', names),
      sentence: trans.__('Ready on **%1**%2', names, model),
      next: trans.__('Used as soon as a cell needs it.'),
      ...(held
        ? shares(session, moment)
        : { figure: '', short: trans.__('%1 · ready', shortName(session, moment)) })
    };
  },
  active: (session, moment, trans) => {
    const { names, model } = where(session, moment, trans);
    const others = neighbours(moment.status, session);
    const shared = trans._n('shared with %1 other', 'shared with %1 others', others);
    return {
      label: trans.__('Computing'),
      word: trans.__('Computing on %1', names) + (others > 0 ? ` · ${shared}` : ''),
      sentence: trans.__('Computing on **%1**%2', names, model),
      next: growth(session, names, others, trans),
      ...shares(session, moment)
    };
  },
  idle: (session, moment, trans) => {
    const left = running(session, 'reclaim_in_s', moment);
    const waits = someoneWaits(moment.status, session);
    const time = left === null ? '' : span(left, trans);
    return {
      ...holding(session, moment, trans),
      word: idleWord(
        session,
        moment,
        left === null
          ? trans.__('stays while nobody waits')
          : trans.__('may be parked in %1', time),
        trans
      ),
      next:
        left === null
          ? trans.__('Stays while nobody waits.')
          : waits
            ? trans.__('May be parked in %1: someone is waiting.', time)
            : trans.__('May be parked in %1 if someone waits.', time)
    };
  },
  warned: (session, moment, trans) => {
    const left = clock(running(session, 'reclaim_in_s', moment) ?? 0);
    const countdown = stops(session)
      ? trans.__('Stopped in **%1**', left)
      : session.next?.code === 'unbind'
        ? trans.__('Given on in **%1**', left)
        : trans.__('Parked in **%1**', left);
    const idle = running(session, 'idle_s', moment);
    const text =
      idle === null ? countdown : `${countdown} · ${trans.__('idle %1', span(idle, trans))}`;
    return {
      ...holding(session, moment, trans),
      label: stops(session) ? trans.__('Idle, will be stopped') : trans.__('Idle, will be parked'),
      word: text,
      sentence: text,
      next: trans.__('Run a cell or keep it, and it stays.'),
      short: countdown.replaceAll('*', '')
    };
  },
  pinned: (session, moment, trans) => {
    const until = timeOfDay(moment.now + 1000 * (running(session, 'pinned_until_s', moment) ?? 0));
    return {
      ...holding(session, moment, trans),
      label: trans.__('Idle, kept'),
      word: idleWord(session, moment, trans.__('kept until %1', until), trans),
      sentence: trans.__('Kept until **%1**', until),
      next: trans.__('Nothing is parked before then.')
    };
  },
  parking: (session, _moment, trans) => {
    const done = progress(session);
    const text = trans.__('Being parked');
    return {
      label: text,
      word: done === null ? text : `${text} · ${percent(done)}`,
      sentence: trans.__('Being parked; its memory goes to host memory'),
      next: trans.__('Run a cell and it comes back.'),
      figure: done === null ? '' : percent(done),
      short: trans.__('Parking')
    };
  },
  parked: (session, moment, trans) => {
    const size = memory(session.parked_bytes);
    if (session.queue_position !== null) {
      const eta = about(running(session, 'eta_s', moment), trans);
      return {
        label: trans.__('Parked, in line'),
        word: trans.__('Coming back is in line · %1', eta),
        sentence: trans.__('Coming back is in line; **%1** wait in host memory', size),
        next: trans.__('The memory must be free first. Nothing is lost.'),
        figure: ordinal(session.queue_position, trans),
        short: trans.__('Parked')
      };
    }
    const soonBack = session.next?.in_s ?? null;
    return {
      label: trans.__('Parked'),
      word: trans.__('Parked · %1 in host memory', size),
      sentence: trans.__('Parked; **%1** wait in host memory', size),
      next:
        soonBack === null
          ? trans.__('Run a cell and they come back.')
          : trans.__('Run a cell and they come back, in %1.', soon(soonBack, trans)),
      figure: '',
      short: trans.__('Parked')
    };
  },
  resuming: (session, moment, trans) => {
    const done = progress(session);
    const figure = done === null ? '' : percent(done);
    const target = whereabouts(moment.status, session);
    return {
      label: trans.__('Coming back'),
      word: trans.__('Coming back') + (figure && ` · ${figure}`),
      sentence: target
        ? trans.__('Coming back to **%1**, %2', target.names, target.model)
        : trans.__('Coming back'),
      next: trans.__('Your cell starts as soon as the memory is back.'),
      figure,
      short: `${trans.__('Coming back')} ${figure}`.trim()
    };
  },
  dead: (session, moment, trans) => {
    const ago = running(session, 'idle_s', moment);
    const text =
      ago === null
        ? trans.__('Ended · GPU given back')
        : trans.__('Ended · GPU given back %1 ago', span(ago, trans));
    return {
      label: trans.__('Ended'),
      word: text,
      sentence: text,
      next: '',
      figure: '',
      short: trans.__('Ended')
    };
  },
  none: (_session, _moment, trans) => {
    const text = trans.__('Runs without a GPU');
    return {
      label: trans.__('No GPU'),
      word: text,
      sentence: text,
      next: trans.__('Ask for one at any time.'),
      figure: '',
      short: trans.__('No GPU')
    };
  },
  lost: (session, moment, trans) => {
    const { names } = where(session, moment, trans);
    return {
      label: trans.__('GPU lost'),
      word: trans.__('%1 stopped answering', names),
      sentence: trans.__('**%1** stopped answering; its memory is lost', names),
      next: trans.__('Restart on another GPU, or wait: it may come back.'),
      figure: '',
      short: trans.__('GPU lost')
    };
  },
  refused: (session, _moment, trans) => {
    const text = trans.__('Not granted');
    return {
      label: text,
      word: text,
      sentence: session.message || text,
      next: nextOf(session, trans),
      figure: '',
      short: text
    };
  }
};

function where(
  session: ISession,
  { status }: IMoment,
  trans: TranslationBundle
): { names: string; model: string } {
  const found = whereabouts(status, session);
  return found
    ? { names: found.names, model: `, ${found.model}` }
    : { names: trans.__('its GPU'), model: '' };
}

/** "A100", of the first device. */
function shortName(session: ISession, { status }: IMoment): string {
  const found = session.devices[0] && place(status, session.devices[0].uuid);
  return found ? shortModel(found.device.model) : 'GPU';
}

/** What bound, active and idle sessions have in common: the share and the card's model. */
function shares(session: ISession, moment: IMoment): { figure: string; short: string } {
  const figure = percent(meanOf(session, part => part.share));
  const model = shortName(session, moment);
  const count = session.devices.length;
  return { figure, short: count > 1 ? `${count} × ${model}` : `${model} · ${figure}` };
}

function holding(
  session: ISession,
  moment: IMoment,
  trans: TranslationBundle
): Omit<Texts, 'word' | 'next'> {
  const { names, model } = where(session, moment, trans);
  return {
    label: trans.__('Idle'),
    sentence: trans.__('Idle on **%1**%2', names, model),
    ...shares(session, moment)
  };
}

function idleWord(
  session: ISession,
  moment: IMoment,
  then: string,
  trans: TranslationBundle
): string {
  const idle = running(session, 'idle_s', moment);
  return `${idle === null ? trans.__('Idle') : trans.__('Idle %1', span(idle, trans))} · ${then}`;
}

/** "Waiting for 2 GPUs, any A100". */
function wanted(session: ISession, trans: TranslationBundle): string {
  const { gpus, constraints } = session.demand;
  const count = Math.ceil(gpus);
  const what = trans._n('Waiting for **a GPU**', 'Waiting for **%1 GPUs**', count);
  const model = constraints?.model ? trans.__(', any %1', constraints.model) : '';
  return what + model + (constraints?.server ? trans.__(' on %1', constraints.server) : '');
}

function growth(
  session: ISession,
  names: string,
  others: number,
  trans: TranslationBundle
): string {
  const share = meanOf(session, part => part.share) ?? 0;
  if (session.borrowed) {
    return trans.__('Borrowed: its holders may want it back.');
  }
  if (share >= session.limit - 0.005) {
    return trans.__('All of it is yours for now.');
  }
  if (others === 0) {
    return trans.__('Grows as the cell needs more.');
  }
  return others === 1
    ? trans.__('Grows when the other notebook on %1 pauses.', names)
    : trans.__('Grows when another notebook on %1 pauses.', names);
}
