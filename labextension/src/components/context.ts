/** What every component may ask: the moment that is drawn, the language, and whom to tell of a wish. */
import { TranslationBundle } from '@jupyterlab/translation';
import { createContext, useContext } from 'react';

import { Action } from '../actions';
import { ISession, ISnapshot } from '../tokens';
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
  openSettings?(): void;
  openUsage?(): void;
  runCheck?(): void;
}

const Ui = createContext<IUi | null>(null);

export const UiProvider = Ui.Provider;

export function useUi(): IUi {
  const ui = useContext(Ui);
  if (!ui) {
    throw new Error('Components of jupyter-gpushare are drawn inside a UiProvider.');
  }
  return ui;
}

/** The moment drawn now; only where there is a status. */
export function useMoment(): IMoment {
  const { snapshot, now } = useUi();
  if (!snapshot.status) {
    throw new Error('Nothing is known yet.');
  }
  return { status: snapshot.status, snapshot, now };
}
