/**
 * One view of the shared GPUs for the whole page, and one event stream for the whole browser.
 *
 * Follows `events` (resuming after the last id), polls `status?since=` where events do not come through, is silent
 * while the page is hidden, and asks again after 1, 2, 4 … 60 s while the service is gone.
 */
import { ISignal, Signal } from '@lumino/signaling';

import { IApi } from './api';
import { Refusal } from './request';
import { readEvents } from './sse';
import { completed, heard, patched, stated, traced } from './status';
import { IGPUShareModel, ISnapshot, IStatus } from './tokens';
import { ITabs } from './tabs';

const REDRAW_MS = 500;
const FIRST_EVENT_MS = 5000; // a proxy that buffers the stream shows nothing for longer than this
const QUIET_MS = 60000; // a stream silent for longer is taken for dead and resumed
const RECONNECT_MS = 1000; // between the end of a stream and its continuation
const MAX_WAIT_S = 60;

const EMPTY: ISnapshot = {
  kind: 'loading',
  status: null,
  heard: {},
  traces: {},
  states: {},
  at: null,
  nextTry: null
};

/** The answers that mean "not here", as opposed to "not now". */
const ABSENT = [401, 403, 404, 405, 501];

export class GPUShareModel implements IGPUShareModel {
  constructor(options: GPUShareModel.IOptions) {
    this._api = options.api;
    this._tabs = options.tabs;
    this._document = options.document ?? document;
    this._document.addEventListener('visibilitychange', this._onVisibility);
    this._tabs.received.connect(this._onTab, this);
    this._onVisibility();
  }

  pollSeconds = 2;

  get snapshot(): ISnapshot {
    return this._snapshot;
  }

  get changed(): ISignal<this, ISnapshot> {
    return this._changed;
  }

  get isDisposed(): boolean {
    return this._isDisposed;
  }

  dispose(): void {
    if (this._isDisposed) {
      return;
    }
    this._isDisposed = true;
    this._document.removeEventListener('visibilitychange', this._onVisibility);
    this._run?.abort();
    clearTimeout(this._redraw);
    this._tabs.dispose();
    Signal.clearData(this);
  }

  retry(): void {
    this._wake();
  }

  private _onVisibility = (): void => {
    const visible = this._document.visibilityState !== 'hidden';
    if (visible && !this._run && this._snapshot.kind !== 'absent') {
      this._run = new AbortController();
      void this._tabs.lead(this._run.signal, signal => this._follow(signal));
    } else if (!visible) {
      this._run?.abort();
      this._run = null;
    }
  };

  /** Another tab holds the stream and tells what it hears. */
  private _onTab(_: ITabs, snapshot: ISnapshot): void {
    this._set(snapshot, false);
  }

  /** Until `signal`: stream, else poll, else wait and begin again. */
  private async _follow(signal: AbortSignal): Promise<void> {
    let failures = 0;
    let push = true;
    while (!signal.aborted) {
      try {
        if (push) {
          push = await this._stream(signal, () => (failures = 0));
          if (push) {
            await this._sleep(RECONNECT_MS, signal);
          }
        } else {
          await this._poll(signal, () => (failures = 0));
        }
      } catch (error) {
        if (signal.aborted) {
          return;
        }
        if (error instanceof Refusal && ABSENT.includes(error.status)) {
          this._set({ ...EMPTY, kind: 'absent' });
          return;
        }
        if (push) {
          push = false; // something may stand between us and the stream only: does `status` answer?
          continue;
        }
        push = true;
        const wait = 1000 * Math.min(2 ** failures, MAX_WAIT_S);
        failures += 1;
        this._set({ ...this._snapshot, kind: 'gone', nextTry: Date.now() + wait });
        await this._sleep(wait, signal);
      }
    }
  }

  /** Applies events until the stream ends. False: events do not come through here, poll instead. */
  private async _stream(signal: AbortSignal, onEvent: () => void): Promise<boolean> {
    const attempt = new AbortController();
    const abort = (): void => attempt.abort();
    signal.addEventListener('abort', abort, { once: true });
    let heardAny = false;
    let timer = setTimeout(abort, FIRST_EVENT_MS);
    try {
      const response = await this._api.events(this._status ? this._lastId : null, attempt.signal);
      if (
        !response.body ||
        !response.headers.get('Content-Type')?.startsWith('text/event-stream')
      ) {
        return false;
      }
      const onBytes = (): void => {
        heardAny = true;
        clearTimeout(timer);
        timer = setTimeout(abort, QUIET_MS);
      };
      const reading = readEvents(response.body, onBytes);
      const aborted = new Promise<never>((_, reject) =>
        attempt.signal.addEventListener('abort', () =>
          reject(new DOMException('Aborted', 'AbortError'))
        )
      );
      for (;;) {
        const { done, value } = await Promise.race([reading.next(), aborted]);
        if (done) {
          // A server that is going down ends its streams: that is a failure unless something was heard.
          if (!heardAny) {
            throw new Error('The event stream ended before its first event.');
          }
          return true;
        }
        this._lastId = value.id ?? this._lastId;
        if (value.event === 'status') {
          this._apply(completed(JSON.parse(value.data) as IStatus));
          onEvent();
        } else if (value.event === 'patch' && this._status) {
          this._apply(patched(this._status, JSON.parse(value.data)));
          onEvent();
        }
      }
    } catch (error) {
      if (attempt.signal.aborted && !signal.aborted) {
        return heardAny; // buffered on its way: poll; silent for a minute: resume
      }
      if (error instanceof Refusal && [404, 405, 406, 501].includes(error.status)) {
        return false; // no events here; whether there is a service at all, `status` will tell
      }
      throw error;
    } finally {
      clearTimeout(timer);
      signal.removeEventListener('abort', abort);
      attempt.abort();
    }
  }

  private async _poll(signal: AbortSignal, onAnswer: () => void): Promise<void> {
    while (!signal.aborted) {
      const status = await this._api.status(this._status?.rev ?? null, signal);
      if (status) {
        this._apply(completed(status));
      } else if (this._status) {
        this._apply(this._status); // nothing changed, and that is known as of now
      }
      onAnswer();
      await this._sleep(1000 * this.pollSeconds, signal);
    }
  }

  private _apply(status: IStatus): void {
    const now = Date.now();
    const { heard: earlier, traces, states, at } = this._snapshot;
    this._set({
      kind: 'ready',
      status,
      heard: heard(earlier, this._status, status, now),
      traces: traced(traces, status, at, now),
      states: stated(states, status, now),
      at: now,
      nextTry: null
    });
  }

  private get _status(): IStatus | null {
    return this._snapshot.status;
  }

  /** Takes the snapshot at once, tells about it at most twice a second. */
  private _set(snapshot: ISnapshot, tell = true): void {
    this._snapshot = snapshot;
    if (tell) {
      this._tabs.send(snapshot);
    }
    if (this._redraw === undefined && !this._isDisposed) {
      const wait = Math.max(0, this._drawnAt + REDRAW_MS - Date.now());
      const draw = (): void => {
        this._redraw = undefined;
        this._drawnAt = Date.now();
        this._changed.emit(this._snapshot);
      };
      if (wait === 0) {
        draw();
      } else {
        this._redraw = setTimeout(draw, wait);
      }
    }
  }

  private _sleep(ms: number, signal: AbortSignal): Promise<void> {
    return new Promise(resolve => {
      const end = (): void => {
        clearTimeout(timer);
        signal.removeEventListener('abort', end);
        resolve();
      };
      const timer = setTimeout(end, ms);
      signal.addEventListener('abort', end);
      this._wake = end;
    });
  }

  private readonly _api: IApi;
  private readonly _tabs: ITabs;
  private readonly _document: Document;
  private readonly _changed = new Signal<this, ISnapshot>(this);
  private _snapshot = EMPTY;
  private _lastId: string | null = null;
  private _run: AbortController | null = null;
  private _wake: () => void = () => undefined;
  private _redraw: ReturnType<typeof setTimeout> | undefined;
  private _drawnAt = -Infinity;
  private _isDisposed = false;
}

export namespace GPUShareModel {
  export interface IOptions {
    api: IApi;
    tabs: ITabs;
    /** Whose visibility counts; for tests. */
    document?: Document;
  }
}
