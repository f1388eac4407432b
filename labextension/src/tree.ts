/** The servers of a large hub as the lines of a tree: model, server, device; or server, device. Pure. */
import { modelName } from './format';
import { IPlace } from './lookup';
import { matcher } from './search';
import { IStatus } from './tokens';
import { freeShare, isForeign, isTroubled, mySessionsOn, restingOn } from './view';

export const FILTERS = ['all', 'free', 'mine', 'trouble'] as const;
export type Filter = (typeof FILTERS)[number];
export type Grouping = 'model' | 'server';

/** How a person left the tree. */
export interface ITreeState {
  query: string;
  filter: Filter;
  grouping: Grouping;
  /** Keys of lines that are not as they would be by themselves. */
  toggled: string[];
}

export const PLAIN: ITreeState = { query: '', filter: 'all', grouping: 'model', toggled: [] };

/** What is searched for stands open by itself; what was opened before the search stays as it was after it. */
function isSearching(state: ITreeState): boolean {
  return state.query.trim() !== '' || state.filter !== 'all';
}

function markOf(state: ITreeState, key: string): string {
  return isSearching(state) ? `?${key}` : key;
}

/** The state with a line opened, or closed. */
export function toggled(state: ITreeState, key: string): ITreeState {
  const mark = markOf(state, key);
  const others = state.toggled.filter(other => other !== mark);
  return { ...state, toggled: others.length < state.toggled.length ? others : [...others, mark] };
}

/** The state with another query or filter. */
export function searched(
  state: ITreeState,
  part: Partial<Pick<ITreeState, 'query' | 'filter'>>
): ITreeState {
  return { ...state, ...part, toggled: state.toggled.filter(key => !key.startsWith('?')) };
}

export interface ILine {
  key: string;
  kind: 'group' | 'server' | 'device' | 'tile';
  level: 1 | 2 | 3;
  /** The model, the server's name, or the device's number. */
  name: string;
  /** What lies below, or the device itself. */
  places: IPlace[];
  /** Null: there is nothing to open. */
  open: boolean | null;
  /** Place among its siblings, from 1, and how many there are. */
  at: number;
  of: number;
}

export const HEIGHTS: Record<ILine['kind'], number> = {
  group: 28,
  server: 30,
  device: 26,
  tile: 132
};

const MOST_OPEN = 60;
const NATURAL = new Intl.Collator(undefined, { numeric: true });

function tests(status: IStatus): Record<Filter, (place: IPlace) => boolean> {
  return {
    all: () => true,
    free: ({ server, device }) => (freeShare(server, device) ?? 0) >= 0.005,
    mine: ({ device }) => mySessionsOn(status, device.uuid).length > 0,
    trouble: isTroubled
  };
}

export interface ITree {
  lines: ILine[];
  /** Devices that the query and each filter leave. */
  counts: Record<Filter, number>;
}

/** Live values never move a line: everything stands by name. */
export function treeOf(status: IStatus, state: ITreeState): ITree {
  const matches = matcher(state.query);
  const found = Object.values(status.servers)
    .flatMap(server => Object.values(server.devices).map(device => ({ server, device })))
    .filter(matches);
  const test = tests(status);
  const counts = Object.fromEntries(
    FILTERS.map(filter => [filter, found.filter(test[filter]).length])
  ) as Record<Filter, number>;
  const shown = found.filter(test[state.filter]);
  const changed = new Set(state.toggled);
  const searching = isSearching(state);
  const isOpen = (key: string, byItself: boolean): boolean =>
    byItself !== changed.has(markOf(state, key));
  const lines: ILine[] = [];

  const addDevices = (key: string, places: IPlace[], level: 2 | 3): void => {
    const sorted = [...places].sort((a, b) => a.device.index - b.device.index);
    sorted.forEach((place, index) => {
      const name = `GPU ${place.device.index}`;
      const line = { name, places: [place], at: index + 1, of: sorted.length, level };
      const own = `${key}/${place.device.uuid}`;
      const open = isOpen(own, false);
      lines.push({ ...line, key: own, kind: 'device', open });
      if (open) {
        lines.push({ ...line, key: `${own}/tile`, kind: 'tile', open: null });
      }
    });
  };
  const addServers = (parent: string, places: IPlace[], level: 1 | 2): void => {
    const servers = grouped(places, ({ server }) => server.name);
    servers.forEach(([name, inside], index) => {
      const key = `${parent}/${name}`;
      const open = isOpen(key, searching);
      const [at, of] = [index + 1, servers.length];
      lines.push({ key, kind: 'server', level, name, places: inside, open, at, of });
      if (open) {
        addDevices(key, inside, level === 1 ? 2 : 3);
      }
    });
  };

  if (state.grouping === 'server') {
    addServers('', shown, 1);
    return { lines, counts };
  }
  const models = grouped(shown, ({ device }) => modelName(device.model));
  models.forEach(([name, places], index) => {
    const notable = places.some(place => test.mine(place) || test.trouble(place));
    const open = isOpen(name, searching || shown.length <= MOST_OPEN || notable);
    const [at, of] = [index + 1, models.length];
    lines.push({ key: name, kind: 'group', level: 1, name, places, open, at, of });
    if (open) {
      addServers(name, places, 2);
    }
  });
  return { lines, counts };
}

function grouped(places: IPlace[], name: (place: IPlace) => string): [string, IPlace[]][] {
  const groups = new Map<string, IPlace[]>();
  for (const place of places) {
    const list = groups.get(name(place));
    if (list) {
      list.push(place);
    } else {
      groups.set(name(place), [place]);
    }
  }
  return [...groups].sort(([a], [b]) => NATURAL.compare(a, b));
}

/** The key of the line above in the tree; null at the top. */
export function parentOf(lines: ILine[], key: string): string | null {
  const index = lines.findIndex(line => line.key === key);
  for (let before = index - 1; before >= 0; before -= 1) {
    if (lines[before].level < lines[index].level) {
      return lines[before].key;
    }
  }
  return null;
}

/** How the devices of a line are held, as fractions of all of them; `free` in devices. */
export function held(
  places: IPlace[],
  status: IStatus
): Record<'mine' | 'others' | 'busy' | 'held' | 'foreign' | 'out' | 'free', number> {
  let [mine, all, idle, foreign, out, free] = [0, 0, 0, 0, 0, 0];
  for (const { server, device } of places) {
    for (const session of mySessionsOn(status, device.uuid)) {
      mine += session.devices.find(part => part.uuid === device.uuid)?.share ?? 0;
    }
    const allocated = device.allocated ?? 0;
    all += allocated;
    idle += Math.min(restingOn(status, device.uuid), allocated);
    foreign += isForeign(device) ? 1 - allocated : 0;
    out += !isForeign(device) && isTroubled({ server, device }) ? 1 - allocated : 0;
    free += freeShare(server, device) ?? 0;
  }
  const count = Math.max(1, places.length);
  return {
    mine: mine / count,
    others: Math.max(0, all - mine) / count,
    busy: (all - idle) / count,
    held: idle / count,
    foreign: foreign / count,
    out: out / count,
    free
  };
}

/** Mean over the devices where it was read; null where it nowhere was. */
export function meanBusy(places: IPlace[]): number | null {
  const read = places.map(({ device }) => device.utilization).filter(value => value !== null);
  return read.length > 0 ? read.reduce((sum, value) => sum + value, 0) / read.length : null;
}
