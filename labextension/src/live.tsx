/** A widget that shows the model while it can be seen, and does nothing at all while it cannot. */
import { ReactWidget } from '@jupyterlab/apputils';
import { TranslationBundle } from '@jupyterlab/translation';
import { Message } from '@lumino/messaging';
import { ReactElement, ReactNode } from 'react';

import { Action } from './actions';
import { UiProvider } from './components/context';
import { IFocus } from './focus';
import type { HelpPage } from './helppages';
import { IGPUShareModel, ISession } from './tokens';
import { ITreeState } from './tree';

/** What all that is shown here shares. */
export interface IHost {
  model: IGPUShareModel;
  focus: IFocus;
  trans: TranslationBundle;
  preferences: IPreferences;
  act(action: Action, session: string): Promise<void>;
  openMenu(session: ISession, anchor: Element): void;
  reveal(session: ISession): void;
  openPanel(): void;
  openSettings?(): void;
  openUsage?(): void;
  openHelp?(page: HelpPage): void;
  runCheck?(): void;
  leave?(): void;
  tree?: ITreeState;
  keepTree?(state: ITreeState): void;
  openDeviceMenu?(device: string, anchor: Element): void;
}

export interface IPreferences {
  rowKeys: boolean;
  /** Kinds of banner that are switched off have false here. */
  banners: Record<string, boolean>;
  /** The same for notifications. */
  notifications: Record<string, boolean>;
}

const TICK_MS = 1000;
const APART_MS = 500; // never two redraws within less

export abstract class LiveWidget extends ReactWidget {
  constructor(protected readonly host: IHost) {
    super();
    this.addClass('jp-GPUShare');
    host.model.changed.connect(this._onChanged, this);
    host.focus.changed.connect(this._onChanged, this);
    document.addEventListener('visibilitychange', this._schedule);
  }

  override dispose(): void {
    if (!this.isDisposed) {
      clearInterval(this._ticks);
      document.removeEventListener('visibilitychange', this._schedule);
      this.host.model.changed.disconnect(this._onChanged, this);
      this.host.focus.changed.disconnect(this._onChanged, this);
    }
    super.dispose();
  }

  /** What is drawn inside; called with every change and once a second. */
  protected abstract draw(): ReactNode;

  protected override render(): ReactElement {
    const { model, focus, preferences } = this.host;
    this._drawnAt = Date.now();
    const ui = {
      ...this.host,
      snapshot: model.snapshot,
      now: this._drawnAt,
      focused: focus.kernel,
      rowKeys: preferences.rowKeys,
      retry: this._retry
    };
    return <UiProvider value={ui}>{this.draw()}</UiProvider>;
  }

  protected override onAfterAttach(msg: Message): void {
    super.onAfterAttach(msg);
    this._schedule();
  }

  protected override onAfterShow(msg: Message): void {
    super.onAfterShow(msg);
    this.update();
    this._schedule();
  }

  protected override onAfterHide(msg: Message): void {
    super.onAfterHide(msg);
    this._schedule();
  }

  protected override onBeforeDetach(msg: Message): void {
    super.onBeforeDetach(msg);
    clearInterval(this._ticks);
    this._ticks = undefined;
  }

  private _onChanged(): void {
    if (this.isVisible) {
      this.update();
    }
  }

  /** Countdowns and ages run once a second, only in what is seen. */
  private _schedule = (): void => {
    const seen = this.isVisible && document.visibilityState !== 'hidden';
    if (!seen) {
      clearInterval(this._ticks);
      this._ticks = undefined;
    } else {
      this._ticks ??= setInterval(() => {
        if (Date.now() - this._drawnAt >= APART_MS) {
          this.update();
        }
      }, TICK_MS);
    }
  };

  private _retry = (): void => this.host.model.retry();

  private _ticks: ReturnType<typeof setInterval> | undefined;
  private _drawnAt = 0;
}
