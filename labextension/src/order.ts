/** In which order and form the parts of the panel stand. Pure. */
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

/** One's own sessions, or with the admin scope others': what needs an answer first, then by name. */
export function inOrder(moment: IMoment, mine = true): ISession[] {
  const rank = (session: ISession): number => RANK[lookOf(session, moment)];
  return Object.values(moment.status.sessions)
    .filter(session => session.mine === mine)
    .sort(
      (a, b) => rank(a) - rank(b) || a.label.localeCompare(b.label) || a.id.localeCompare(b.id)
    );
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
