/** Who is on which device, found once for each status: thousands of sessions are not searched for every bar. Pure. */
import { IDevice, IServer, ISession, IStatus } from './tokens';

export interface IPlace {
  server: IServer;
  device: IDevice;
}

interface ILookup {
  /** All of them; to list the keys of a large map again and again would cost more than all else. */
  sessions: readonly ISession[];
  places: Map<string, IPlace>;
  /** By device: one's own sessions on it. */
  mine: Map<string, ISession[]>;
  /** By device: the shares of others that are known by name. */
  named: Map<string, number[]>;
  /** By device: what sessions hold of it that rest. */
  resting: Map<string, number>;
}

const known = new WeakMap<IStatus, ILookup>();

function add<T>(map: Map<string, T[]>, key: string, value: T): void {
  const list = map.get(key);
  if (list) {
    list.push(value);
  } else {
    map.set(key, [value]);
  }
}

/** The same object for the same status. */
export function lookup(status: IStatus): ILookup {
  const found = known.get(status);
  if (found) {
    return found;
  }
  const sessions = Object.values(status.sessions);
  const made: ILookup = {
    sessions,
    places: new Map(),
    mine: new Map(),
    named: new Map(),
    resting: new Map()
  };
  for (const server of Object.values(status.servers)) {
    for (const device of Object.values(server.devices)) {
      made.places.set(device.uuid, { server, device });
    }
  }
  for (const session of sessions) {
    for (const part of session.devices) {
      if (session.mine) {
        add(made.mine, part.uuid, session);
      } else if (part.share > 0) {
        add(made.named, part.uuid, part.share);
      }
      if (session.state === 'idle') {
        made.resting.set(part.uuid, (made.resting.get(part.uuid) ?? 0) + part.share);
      }
    }
  }
  known.set(status, made);
  return made;
}
