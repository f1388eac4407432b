/** Sessions, devices and a status as the server sends them, with what a test cares about on top. */
import { nullTranslator } from '@jupyterlab/translation';

import { IDevice, ISession, ISnapshot, IStatus, SessionState } from '../tokens';
import { IMoment } from '../view';

export const GIB = 2 ** 30;
export const NOW = Date.UTC(2026, 11, 2, 12, 0, 0);
export const trans = nullTranslator.load('jupyter_gpushare');

export function session(state: SessionState, more: Partial<ISession> = {}): ISession {
  return {
    id: 'k1',
    user: 'alice',
    mine: true,
    server: 'alpha',
    label: 'train.ipynb',
    path: 'work/train.ipynb',
    kind: 'compute',
    horizon: 'bursty',
    state,
    devices: ['bound', 'active', 'idle', 'lost', 'resuming'].includes(state) ? [part(0, 0.5)] : [],
    guarantee: 0.1,
    limit: 1,
    idle_s: null,
    reclaim_in_s: null,
    pinned_until_s: null,
    queue_position: null,
    eta_s: null,
    waiting_s: null,
    demand: { gpus: 0.1 },
    parked_bytes: null,
    moved_bytes: null,
    next: { code: 'stay', text: '', in_s: null },
    charged_gpu_s: 5040,
    message: '',
    borrowed: false,
    gate: 'open',
    singleuser: null,
    ...more
  };
}

export function part(index: number, share: number): ISession['devices'][number] {
  return { uuid: `GPU-${index}`, share, memory_used: 31.2 * GIB, utilization: 0.86 };
}

export function device(index: number, more: Partial<IDevice> = {}): IDevice {
  return {
    uuid: `GPU-${index}`,
    index,
    model: 'NVIDIA A100-SXM4-80GB',
    state: 'healthy',
    reason: null,
    sharing: 'timeslice',
    enforced: 'target',
    in_pool: true,
    can_park: true,
    cannot_park: null,
    memory_total: 80 * GIB,
    memory_used: 47 * GIB,
    memory_unaccounted: 0,
    utilization: 0.86,
    memory_utilization: 0.2,
    temperature_c: 63,
    temperature_limit_c: 92,
    power_w: 310,
    power_limit_w: 400,
    age_s: 0.4,
    pcie_rx_gb_s: null,
    pcie_tx_gb_s: null,
    nvlink_rx_gb_s: null,
    nvlink_tx_gb_s: null,
    allocated: 0.75,
    other_shares: [],
    others: [],
    ...more
  };
}

export function status(
  sessions: ISession[],
  devices = [device(0), device(1)],
  more: Partial<IStatus> = {}
): IStatus {
  return {
    version: '0.1.0',
    rev: 1,
    mode: 'embedded',
    simulated: false,
    user: 'alice',
    admin: false,
    degraded: [],
    servers: {
      alpha: {
        name: 'alpha',
        state: 'up',
        age_s: 0.3,
        devices: Object.fromEntries(devices.map(one => [one.uuid, one]))
      }
    },
    sessions: Object.fromEntries(sessions.map(one => [one.id, one])),
    queue: [],
    warn_before_s: 30,
    stop_warn_s: 300,
    summary: { devices: devices.length, free: 0, waiting: 0 },
    ...more
  };
}

export function snapshot(of: IStatus, more: Partial<ISnapshot> = {}): ISnapshot {
  return {
    kind: 'ready',
    status: of,
    heard: {},
    traces: {},
    states: {},
    at: NOW,
    nextTry: null,
    ...more
  };
}

export function moment(of: IStatus, more: Partial<ISnapshot> = {}): IMoment {
  return { status: of, snapshot: snapshot(of, more), now: NOW };
}
