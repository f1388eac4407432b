/** What parts of the status mean, asked by everything that shows them. Pure. */
import { modelName } from './format';
import { IPlace, lookup } from './lookup';
import { Duration, IDevice, IPart, IServer, ISession, ISnapshot, IStatus } from './tokens';

/** A status together with the moment it is looked at. */
export interface IMoment {
  status: IStatus;
  snapshot: ISnapshot;
  /** ms of Date.now. */
  now: number;
}

/** The value of a running duration at this moment; counts down, or up for `idle_s` and `waiting_s`. */
export function running(
  session: ISession,
  field: Duration,
  { snapshot, now }: IMoment
): number | null {
  const value = session[field];
  if (value === null) {
    return null;
  }
  const passed =
    snapshot.kind === 'ready'
      ? Math.max(0, now - (snapshot.heard[session.id]?.[field] ?? now)) / 1000
      : 0;
  return field === 'idle_s' || field === 'waiting_s' ? value + passed : Math.max(0, value - passed);
}

export function place(status: IStatus, uuid: string): IPlace | null {
  return lookup(status).places.get(uuid) ?? null;
}

/** "GPU 2", with its server where there are several. */
export function deviceName(status: IStatus, { server, device }: IPlace): string {
  return Object.keys(status.servers).length > 1
    ? `GPU ${device.index}, ${server.name}`
    : `GPU ${device.index}`;
}

/** "GPU 2", "GPUs 0, 1"; null: none that is known. */
export function whereabouts(
  status: IStatus,
  session: ISession
): { names: string; model: string } | null {
  const places = session.devices
    .map(part => place(status, part.uuid))
    .filter(found => found !== null);
  const [first] = places;
  if (!first) {
    return null;
  }
  const names =
    places.length === 1
      ? deviceName(status, first)
      : `GPUs ${places
          .map(found => found.device.index)
          .sort((a, b) => a - b)
          .join(', ')}`;
  return { names, model: modelName(first.device.model) };
}

/** The session's share over all its devices, in devices. */
export function totalShare(session: ISession): number {
  return session.devices.reduce((sum, part) => sum + part.share, 0);
}

/** Sum of what could be read; null where nothing could. */
export function sumOf(session: ISession, read: (part: IPart) => number | null): number | null {
  const values = session.devices.map(read).filter(value => value !== null);
  return values.length > 0 ? values.reduce((sum, value) => sum + value, 0) : null;
}

/** Mean of what could be read; null where nothing could. */
export function meanOf(session: ISession, read: (part: IPart) => number | null): number | null {
  const values = session.devices.map(read).filter(value => value !== null);
  return values.length > 0 ? values.reduce((sum, value) => sum + value, 0) / values.length : null;
}

/** How many others hold a share of this session's devices, at most over its devices. */
export function neighbours(status: IStatus, session: ISession): number {
  return Math.max(
    0,
    ...session.devices.map(part => {
      const mine = mySessionsOn(status, part.uuid).filter(other => other.id !== session.id);
      const found = place(status, part.uuid);
      const others = found ? othersOn(status, found.device) : [];
      // With the admin scope a session of somebody else is itself one of the others.
      return mine.length + others.length - (session.mine || part.share === 0 ? 0 : 1);
    })
  );
}

export function mySessionsOn(status: IStatus, uuid: string): readonly ISession[] {
  return lookup(status).mine.get(uuid) ?? [];
}

/** My share of a device, over all my sessions on it. */
export function myShareOf(status: IStatus, uuid: string): number {
  return mySessionsOn(status, uuid)
    .map(session => session.devices.find(part => part.uuid === uuid)?.share ?? 0)
    .reduce((sum, share) => sum + share, 0);
}

/** What others hold of a device: nameless shares, and with the admin scope their sessions instead. */
export function othersOn(status: IStatus, device: IDevice): number[] {
  const named = lookup(status).named.get(device.uuid) ?? [];
  return [...named, ...device.other_shares.filter(share => share > 0)];
}

/** What is held of a device by sessions that rest; only of those that one may know. */
export function restingOn(status: IStatus, uuid: string): number {
  return lookup(status).resting.get(uuid) ?? 0;
}

/** Somebody waits besides this session. */
export function someoneWaits(status: IStatus, session: ISession): boolean {
  return status.queue.some(id => id !== session.id);
}

/** May take sessions now: healthy, in the pool, nothing on it that is not managed. */
export function isOffered(server: IServer, device: IDevice): boolean {
  return (
    server.state !== 'down' && device.in_pool && device.state === 'healthy' && !isForeign(device)
  );
}

/** A whole device of the kind that the session asks for is free. */
export function isOneFree(status: IStatus, { demand }: ISession): boolean {
  const { model, server: name } = demand.constraints ?? {};
  return Object.values(status.servers)
    .filter(server => !name || server.name === name)
    .some(server =>
      Object.values(server.devices).some(
        device =>
          (freeShare(server, device) ?? 0) > 0.995 &&
          (!model || device.model.toLowerCase().includes(model.toLowerCase()))
      )
    );
}

/** Holds memory of processes that belong to no notebook, and would not be safe to lend. */
export function isForeign(device: IDevice): boolean {
  return device.others.some(other => other.why !== 'off-lease');
}

/** Something is wrong with it, or with its server. */
export function isTroubled({ server, device }: IPlace): boolean {
  return server.state === 'down' || device.state !== 'healthy' || isForeign(device);
}

/** Bytes that belong to no notebook; null where that could not be read. */
export function unmanaged(device: IDevice): number | null {
  const known = device.others.map(other => other.memory).filter(value => value !== null);
  const total = known.reduce((sum, value) => sum + value, device.memory_unaccounted ?? 0);
  return total > 0 || known.length === device.others.length ? total : null;
}

/** Fraction of the device that is free; null where it is unknown or not offered. */
export function freeShare(server: IServer, device: IDevice): number | null {
  return device.allocated === null || !isOffered(server, device)
    ? null
    : Math.max(0, 1 - device.allocated);
}
