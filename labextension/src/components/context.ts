/** What every component may ask: the moment that is drawn, the language, and whom to tell of a wish. */
import { TranslationBundle } from '@jupyterlab/translation';
import { createContext, createElement, ReactNode, useContext, useRef } from 'react';

import { Action } from '../actions';
import type { HelpPage } from '../helppages';
import { IPlace } from '../lookup';
import { ISession, ISnapshot, IStatus } from '../tokens';
import { ITreeState } from '../tree';
import { IMoment } from '../view';

export interface IUi {
  snapshot: ISnapshot;
  /** ms of Date.now, the same for all that is drawn together. */
  now: number;
  trans: TranslationBundle;
  /** Id of the focused notebook's kernel. */
  focused: string | null;
  /** Single keys act on a focused row or card. */
  rowKeys: boolean;
  /** Rejects with what the server said. */
  act(action: Action, session: string): Promise<void>;
  openMenu(session: ISession, anchor: Element): void;
  /** Brings the session's notebook to the front. */
  reveal(session: ISession): void;
  retry(): void;
  /** Brings the notebook in front back. */
  leave?(): void;
  /** How the tree of devices was left, and where that is kept. */
  tree?: ITreeState;
  keepTree?(state: ITreeState): void;
  openDeviceMenu?(device: string, anchor: Element): void;
  /** Empties a device or offers it again, where that has a button of its own; else it is in the device's menu. */
  drain?(place: IPlace, drained: boolean): void;
  /** Bars tell what computes and what is held idle, instead of whose it is; with the admin scope only. */
  byUse?: boolean;
  /** What can be done from here; all of it where this is not said. */
  offered?: readonly Action[];
  openSettings?(): void;
  openUsage?(): void;
  openHelp?(page: HelpPage): void;
  runCheck?(): void;
}

type Lasting = Omit<IUi, 'now'>;

const Ui = createContext<Lasting | null>(null);
const Now = createContext(0);

/** The clock stands apart: with a second that passes, only what shows times is drawn again. */
export function UiProvider(props: { value: IUi; children?: ReactNode }): JSX.Element {
  const { now, ...given } = props.value;
  const lasting = useRef<Lasting>(given);
  const names = Object.keys(given) as (keyof Lasting)[];
  if (names.some(name => lasting.current[name] !== given[name])) {
    lasting.current = given;
  }
  return createElement(
    Ui.Provider,
    { value: lasting.current },
    createElement(Now.Provider, { value: now }, props.children)
  );
}

export function useUi(): Lasting {
  const ui = useContext(Ui);
  if (!ui) {
    throw new Error('Components of jupyter-gpushare are drawn inside a UiProvider.');
  }
  return ui;
}

export function useNow(): number {
  return useContext(Now);
}

/** Only where there is a status. */
export function useStatus(): IStatus {
  const { status } = useUi().snapshot;
  if (!status) {
    throw new Error('Nothing is known yet.');
  }
  return status;
}

/** The moment drawn now, for what shows times; only where there is a status. */
export function useMoment(): IMoment {
  return { status: useStatus(), snapshot: useUi().snapshot, now: useNow() };
}
