/** What can be done with a session, in which state, and how it is called. Pure. */
import { TranslationBundle } from '@jupyterlab/translation';

import { Look } from './states';
import { ISession } from './tokens';

export type Action =
  | 'keep'
  | 'keep-for'
  | 'unkeep'
  | 'let-go'
  | 'park'
  | 'bring-back'
  | 'ask-for-more'
  | 'take-one'
  | 'move'
  | 'why'
  | 'timeline'
  | 'restart'
  | 'what-is-lost'
  | 'interrupt'
  | 'stop';

const HOLDING: Look[] = ['bound', 'active', 'idle', 'warned', 'pinned'];

/** Where each action makes sense; the server has the last word. */
const SENSIBLE: Record<Action, Look[]> = {
  keep: ['bound', 'active', 'idle', 'warned', 'parked'],
  'keep-for': [...HOLDING, 'parked'],
  unkeep: [...HOLDING, 'parked'],
  'let-go': [...HOLDING, 'waiting', 'refused'],
  park: ['idle', 'pinned', 'warned'],
  'bring-back': ['parked', 'parking'],
  'ask-for-more': [...HOLDING, 'none', 'refused', 'parked', 'waiting'],
  'take-one': ['waiting'],
  move: HOLDING,
  why: [...HOLDING, 'parked', 'resuming', 'waiting'],
  timeline: [...HOLDING, 'parked', 'parking', 'resuming', 'waiting', 'none', 'lost', 'refused'],
  restart: ['lost'],
  'what-is-lost': ['lost'],
  interrupt: ['waiting'],
  stop: ['dead', ...HOLDING, 'parked', 'none', 'lost', 'waiting', 'refused']
};

/** The buttons on the card, in order. */
const ON_CARD: Record<Look, Action[]> = {
  waiting: ['take-one', 'let-go'],
  bound: ['keep', 'ask-for-more'],
  active: ['keep', 'ask-for-more'],
  idle: ['keep', 'park', 'ask-for-more'],
  warned: ['keep', 'let-go'],
  pinned: ['unkeep', 'ask-for-more'],
  parking: ['bring-back'],
  parked: ['bring-back'],
  resuming: [],
  none: ['ask-for-more'],
  lost: ['restart', 'what-is-lost'],
  dead: [],
  refused: ['ask-for-more']
};

/** The ⋯ menu, in order. */
export const MENU: Action[] = [
  'keep',
  'keep-for',
  'unkeep',
  'let-go',
  'park',
  'bring-back',
  'take-one',
  'ask-for-more',
  'move',
  'why',
  'timeline',
  'restart',
  'stop'
];

/** Single keys on a focused row or card. */
export const KEYS: Record<string, Action> = {
  k: 'keep',
  l: 'let-go',
  p: 'park',
  b: 'bring-back',
  w: 'why',
  a: 'ask-for-more'
};

export function isSensible(action: Action, look: Look, session: ISession): boolean {
  const kept = session.pinned_until_s !== null; // then the offer is the opposite
  const offered =
    action === 'keep'
      ? !kept
      : action === 'unkeep'
        ? kept
        : action !== 'take-one' || session.demand.gpus > 1;
  return offered && SENSIBLE[action].includes(look);
}

/** `one`: one whole GPU of the kind that is waited for is free now. */
export function cardActions(look: Look, session: ISession, one: boolean): Action[] {
  const kept = session.pinned_until_s !== null;
  return ON_CARD[look]
    .map(action => (action === 'keep' && kept ? 'unkeep' : action))
    .filter(action => action !== 'take-one' || (one && isSensible(action, look, session)));
}

/** Only a row that needs an answer shows buttons. */
export function rowActions(look: Look): Action[] {
  return look === 'warned' || look === 'lost' ? ON_CARD[look] : [];
}

export function actionLabel(action: Action, look: Look, trans: TranslationBundle): string {
  switch (action) {
    case 'keep':
      return trans.__('Keep 1 h');
    case 'keep-for':
      return trans.__('Keep for…');
    case 'unkeep':
      return trans.__('Stop keeping');
    case 'let-go':
      return look === 'waiting' ? trans.__('Run without GPU') : trans.__('Let go');
    case 'park':
      return trans.__('Park');
    case 'bring-back':
      return trans.__('Bring back now');
    case 'ask-for-more':
      return look === 'none' ? trans.__('Ask for a GPU…') : trans.__('Ask for more…');
    case 'take-one':
      return trans.__('Take 1 GPU now');
    case 'move':
      return trans.__('Move to another GPU…');
    case 'why':
      return look === 'waiting' ? trans.__('Why so long?') : trans.__('Why this GPU?');
    case 'timeline':
      return trans.__('Timeline and usage');
    case 'restart':
      return trans.__('Restart on another GPU…');
    case 'what-is-lost':
      return trans.__('What is lost?');
    case 'interrupt':
      return trans.__('Stop the cell');
    case 'stop':
      return trans.__('Stop the kernel…');
  }
}
