/** In which order and form the parts of the panel stand. Pure. */
import { lookup } from './lookup';
import { Look, lookOf } from './states';
import { IServer, ISession, IStatus } from './tokens';
import { freeShare, IMoment, isOffered } from './view';

const RANK: Record<Look, number> = {
  lost: 0,
  warned: 1,
  resuming: 2,
  waiting: 3,
  refused: 3,
  active: 4,
  bound: 5,
  idle: 6,
  pinned: 6,
  parking: 7,
  parked: 7,
  none: 8,
  dead: 9
};

const NAMES = new Intl.Collator();

/**
 * One's own sessions, or with the admin scope others': what needs an answer first, then by name.
 *
 * `before`: how they stood last. Of thousands only those that changed are sorted, and put in among the others.
 */
export function inOrder(
  moment: IMoment,
  mine = true,
  before: readonly ISession[] = []
): ISession[] {
  const { sessions } = moment.status;
  const compare = (a: ISession, b: ISession): number =>
    RANK[lookOf(a, moment)] - RANK[lookOf(b, moment)] ||
    NAMES.compare(a.label, b.label) ||
    NAMES.compare(a.id, b.id);
  const same = before.filter(session => sessions[session.id] === session);
  const known = new Set(same);
  const fresh = lookup(moment.status)
    .sessions.filter(session => session.mine === mine && !known.has(session))
    .sort(compare);
  if (same.length === 0) {
    return fresh;
  }
  const result: ISession[] = [];
  let from = 0;
  for (const session of fresh) {
    let [low, high] = [from, same.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (compare(same[middle], session) <= 0) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    result.push(...same.slice(from, low), session);
    from = low;
  }
  return result.concat(same.slice(from));
}

/** Servers by name, as they always stand: live values never move a row. */
export function serversInOrder(status: IStatus): IServer[] {
  return Object.values(status.servers).sort((a, b) =>
    a.name.localeCompare(b.name, undefined, { numeric: true })
  );
}

export interface ITotals {
  devices: number;
  /** Devices free, in fractions; only of those offered. */
  free: number;
  waiting: number;
  silent: number;
}

export function totals(status: IStatus): ITotals {
  let count = 0;
  let free = 0;
  for (const server of Object.values(status.servers)) {
    for (const device of Object.values(server.devices)) {
      count += 1;
      free += isOffered(server, device) ? (freeShare(server, device) ?? 0) : 0;
    }
  }
  return {
    devices: count,
    free,
    waiting: status.queue.length,
    silent: Object.values(status.servers).filter(server => server.state === 'down').length
  };
}

/** Does the session hold a device now? */
export function holds(session: ISession): boolean {
  return (
    ['active', 'idle', 'parking', 'resuming'].includes(session.state) && session.devices.length > 0
  );
}
