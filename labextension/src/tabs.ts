/** One stream for all tabs of a browser: the holder of a lock follows the server and tells the others what it hears. */
import { IDisposable } from '@lumino/disposable';
import { ISignal, Signal } from '@lumino/signaling';

import { ISnapshot } from './tokens';

export interface ITabs extends IDisposable {
  /** What the leading tab hears; never this tab's own news. */
  readonly received: ISignal<ITabs, ISnapshot>;
  send(snapshot: ISnapshot): void;
  /** Runs `work` once this tab leads, until `signal`. */
  lead(signal: AbortSignal, work: (signal: AbortSignal) => Promise<void>): Promise<void>;
}

export class Tabs implements ITabs {
  /** `name` is the same for all tabs of one server and user. Without locks or channels every tab leads itself. */
  constructor(name: string) {
    this._name = `jupyter-gpushare:${name}`;
    this._locks = typeof BroadcastChannel === 'undefined' ? undefined : navigator.locks;
    if (this._locks) {
      this._channel = new BroadcastChannel(this._name);
      this._channel.onmessage = ({ data }: MessageEvent<ISnapshot | 'hello' | 'here'>) => {
        this._isAlone = false;
        if (data === 'hello') {
          this._channel?.postMessage(this._leads && this._last ? this._last : 'here');
        } else if (data !== 'here') {
          this._received.emit(data);
        }
      };
    }
  }

  get received(): ISignal<this, ISnapshot> {
    return this._received;
  }

  get isDisposed(): boolean {
    return this._isDisposed;
  }

  dispose(): void {
    this._isDisposed = true;
    this._channel?.close();
    Signal.clearData(this);
  }

  send(snapshot: ISnapshot): void {
    this._last = snapshot;
    if (!this._isDisposed && !this._isAlone) {
      this._channel?.postMessage(snapshot);
    }
  }

  async lead(signal: AbortSignal, work: (signal: AbortSignal) => Promise<void>): Promise<void> {
    if (!this._locks) {
      return work(signal);
    }
    this._channel?.postMessage('hello');
    try {
      await this._locks.request(this._name, { signal }, async () => {
        this._leads = true;
        try {
          await work(signal);
        } finally {
          this._leads = false;
        }
      });
    } catch (error) {
      if (!signal.aborted) {
        throw error;
      }
    }
  }

  private readonly _name: string;
  private readonly _locks: LockManager | undefined;
  private readonly _received = new Signal<this, ISnapshot>(this);
  private _channel: BroadcastChannel | undefined;
  private _last: ISnapshot | undefined;
  private _leads = false;
  /** Nobody else was heard yet: a copy of a large snapshot would be for nobody. */
  private _isAlone = true;
  private _isDisposed = false;
}
