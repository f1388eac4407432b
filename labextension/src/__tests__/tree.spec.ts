import { ILine, ITreeState, parentOf, PLAIN, treeOf } from '../tree';
import { matcher } from '../search';
import { IDevice, IServer, IStatus } from '../tokens';
import { device, GIB, part, session, status } from './builders';

function server(name: string, devices: IDevice[]): IServer {
  const named = devices.map(one => ({ ...one, uuid: `${name}-${one.index}` }));
  return {
    name,
    state: 'up',
    age_s: 0,
    devices: Object.fromEntries(named.map(one => [one.uuid, one]))
  };
}

/** Two servers of A100 and one of H100; nothing is held unless a test says so. */
function hub(more: Partial<IDevice> = {}, size = 4): IStatus {
  const free = { allocated: 0, ...more };
  const devices = (model: string): IDevice[] =>
    Array.from({ length: size }, (_, index) => device(index, { model, ...free }));
  const made = status([]);
  return {
    ...made,
    servers: {
      node10: server('node10', devices('NVIDIA A100-SXM4-80GB')),
      node9: server('node9', devices('NVIDIA A100-SXM4-80GB')),
      big: server('big', devices('NVIDIA H100 80GB HBM3'))
    }
  };
}

function names(lines: ILine[]): string[] {
  return lines.map(line => `${line.level} ${line.name}`);
}

function left(state: Partial<ITreeState>): ITreeState {
  return { ...PLAIN, ...state };
}

test('a small hub shows models and their servers by name, devices once a server is opened', () => {
  const { lines } = treeOf(hub(), PLAIN);
  expect(names(lines)).toEqual(['1 A100 80GB', '2 node9', '2 node10', '1 H100 80GB', '2 big']);
  const opened = treeOf(hub(), left({ toggled: ['H100 80GB/big'] })).lines;
  expect(names(opened).slice(-5)).toEqual(['2 big', '3 GPU 0', '3 GPU 1', '3 GPU 2', '3 GPU 3']);
  expect(opened.at(-1)).toMatchObject({ at: 4, of: 4, open: false });
});

test('beyond 60 devices groups are closed, except those that hold mine or are in trouble', () => {
  const large = hub({}, 30);
  expect(names(treeOf(large, PLAIN).lines)).toEqual(['1 A100 80GB', '1 H100 80GB']);
  const mine = { ...part(0, 0.5), uuid: 'big-3' };
  const with_mine = { ...large, sessions: { k1: session('active', { devices: [mine] }) } };
  expect(names(treeOf(with_mine, PLAIN).lines)).toEqual(['1 A100 80GB', '1 H100 80GB', '2 big']);
});

test('each filter says how many devices it leaves, and opens what it leaves', () => {
  const seen = hub();
  seen.servers.node9.devices['node9-1'].state = 'lost';
  seen.servers.node9.devices['node9-2'].allocated = 1;
  const mine = { ...part(0, 0.5), uuid: 'big-3' };
  seen.sessions = { k1: session('active', { devices: [mine] }) };
  const { lines, counts } = treeOf(seen, left({ filter: 'trouble' }));
  expect(counts).toEqual({ all: 12, free: 10, mine: 1, trouble: 1 });
  expect(names(lines)).toEqual(['1 A100 80GB', '2 node9', '3 GPU 1']);
  expect(parentOf(lines, lines[2].key)).toBe(lines[1].key);
});

test('grouped by server the servers stand at the top', () => {
  const { lines } = treeOf(hub(), left({ grouping: 'server' }));
  expect(names(lines)).toEqual(['1 big', '1 node9', '1 node10']);
});

test('a live value never moves a line', () => {
  const before = names(treeOf(hub({ allocated: 0.1 }), PLAIN).lines);
  const seen = hub({ allocated: 0.1 });
  seen.servers.node10.devices['node10-0'].allocated = 0.99;
  expect(names(treeOf(seen, PLAIN).lines)).toEqual(before);
});

test('the search field understands words, model, server, free and mem', () => {
  const made = device(3, { allocated: 0.25, memory_total: 80 * GIB, memory_used: 30 * GIB });
  const place = { server: server('rack2-node7', []), device: made };
  const yes = ['', 'a100', 'RACK2', 'model:a100', 'server:node7', 'free>0.5', 'mem>40 gpu'];
  const no = ['h100', 'server:node8', 'free>0.8', 'free<0.5', 'mem>60', 'a100 h100'];
  expect(yes.filter(query => !matcher(query)(place))).toEqual([]);
  expect(no.filter(query => matcher(query)(place))).toEqual([]);
});

test('what was not read matches no figure', () => {
  const unread = device(0, { allocated: null, memory_used: null });
  const place = { server: server('alpha', []), device: unread };
  expect(['free>0', 'free<1', 'mem>0', 'mem<999'].some(query => matcher(query)(place))).toBe(false);
});
