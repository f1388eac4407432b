/** The panel alone on a page, fed by a made-up service; `benchmarks/front_end.py` drives it. */
import { nullTranslator } from '@jupyterlab/translation';
import { Signal } from '@lumino/signaling';
import { Widget } from '@lumino/widgets';

import { GIB, device as aDevice, session as aSession } from '../src/__tests__/builders';
import { createApi } from '../src/api';
import { IFocus } from '../src/focus';
import { IHost } from '../src/live';
import { GPUShareModel } from '../src/model';
import { GPUSharePanel } from '../src/panel';
import { ITabs } from '../src/tabs';
import { IDevice, ISession, IStatus } from '../src/tokens';

const MODELS = ['NVIDIA A100-SXM4-80GB', 'NVIDIA H100 80GB HBM3', 'NVIDIA L40S'];

/** The same figures in every run. */
function noise(seed: number): number {
  const value = Math.sin(seed * 12.9898) * 43758.5453;
  return value - Math.floor(value);
}

function device(index: number): IDevice {
  return aDevice(index, {
    index: index % 8,
    model: MODELS[Math.floor(index / 8) % MODELS.length],
    memory_used: Math.round(80 * GIB * noise(index)),
    utilization: noise(index + 1),
    temperature_c: 40 + Math.round(40 * noise(index + 2)),
    power_w: 300,
    age_s: 0.5,
    allocated: Math.round(100 * noise(index + 3)) / 100
  });
}

function session(index: number, devices: number): ISession {
  const mine = index % 1000 === 0;
  return aSession(index % 3 ? 'idle' : 'active', {
    id: `k${index}`,
    user: mine ? 'admin' : `user${index % 700}`,
    mine,
    server: `node${Math.floor((index % devices) / 8)}`,
    label: `experiment-${index % 97}-${index}.ipynb`,
    path: `work/experiment-${index}.ipynb`,
    devices: [
      { uuid: `GPU-${index % devices}`, share: 0.1, memory_used: 2 * GIB, utilization: 0.1 }
    ],
    idle_s: index % 3 ? 30 + (index % 50) : null,
    next: { code: 'stay', text: '', in_s: null },
    charged_gpu_s: 100 + index
  });
}

function hub(devices: number, sessions: number): IStatus {
  const servers: IStatus['servers'] = {};
  for (let index = 0; index < devices; index += 1) {
    const name = `node${Math.floor(index / 8)}`;
    servers[name] ??= { name, state: 'up', age_s: 0.5, devices: {} };
    servers[name].devices[`GPU-${index}`] = device(index);
  }
  const list = Array.from({ length: sessions }, (_, index) => session(index, devices));
  return {
    version: '0',
    rev: 1,
    mode: 'hub',
    simulated: true,
    user: 'admin',
    admin: true,
    degraded: [],
    servers,
    sessions: Object.fromEntries(list.map(one => [one.id, one])),
    queue: [],
    warn_before_s: 5,
    stop_warn_s: 300,
    summary: { devices, free: devices / 2, waiting: 0 }
  } as IStatus;
}

let events: ReadableStreamDefaultController<Uint8Array>;
let rev = 1;

function send(event: string, data: unknown): void {
  rev += 1;
  const text = `event: ${event}\nid: ${rev}\ndata: ${JSON.stringify(data)}\n\n`;
  events.enqueue(new TextEncoder().encode(text));
}

/** What a busy quarter of a second changes: readings of some devices, shares of some sessions. */
function change(devices: number, sessions: number, count: number): unknown {
  const servers: Record<string, { devices: Record<string, Partial<IDevice>> }> = {};
  const changed: Record<string, Partial<ISession>> = {};
  for (let step = 0; step < count; step += 1) {
    const at = Math.floor(noise(rev * 31 + step) * devices);
    const name = `node${Math.floor(at / 8)}`;
    servers[name] ??= { devices: {} };
    servers[name].devices[`GPU-${at}`] = { utilization: noise(rev + step), age_s: 0.1 };
    const which = Math.floor(noise(rev * 17 + step) * sessions);
    changed[`k${which}`] = { charged_gpu_s: rev + step, state: step % 2 ? 'active' : 'idle' };
  }
  return { rev, servers, sessions: changed };
}

const tabs: ITabs = {
  received: new Signal({} as ITabs),
  send: () => undefined,
  lead: (signal, work) => work(signal),
  isDisposed: false,
  dispose: () => undefined
};

const focus: IFocus = { kernel: 'k0', changed: new Signal({} as IFocus) };

function start(devices: number, sessions: number): void {
  const body = new ReadableStream<Uint8Array>({ start: controller => void (events = controller) });
  const answer = {
    ok: true,
    status: 200,
    body,
    headers: new Headers({ 'Content-Type': 'text/event-stream' })
  };
  const settings = { baseUrl: 'http://localhost/' } as Parameters<typeof createApi>[0];
  const api = createApi(settings, () => Promise.resolve(answer as unknown as Response));
  const model = new GPUShareModel({ api, tabs });
  const host: IHost = {
    model,
    focus,
    trans: nullTranslator.load('jupyter_gpushare'),
    preferences: { rowKeys: true, banners: {}, notifications: {} },
    act: () => Promise.resolve(),
    openMenu: () => undefined,
    reveal: () => undefined,
    openPanel: () => undefined
  } as IHost;
  const panel = new GPUSharePanel(host);
  Widget.attach(panel, document.body);
  let told = 0;
  model.changed.connect(() => void (told += 1));
  Object.assign(window, {
    bench: {
      first: () => send('status', hub(devices, sessions)),
      push: (count: number) => send('patch', change(devices, sessions, count)),
      told: () => told,
      lines: () => panel.node.querySelectorAll('[data-stop]').length,
      at: () => model.snapshot.at,
      node: panel.node
    }
  });
}

Object.assign(window, { start });
