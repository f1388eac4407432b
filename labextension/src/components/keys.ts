/** Keyboard use of lists and cards. */
import { KeyboardEvent } from 'react';

import { Action, isSensible, KEYS } from '../actions';
import { Look } from '../states';

const STOP = '[data-stop]';

/** Arrow keys, Home and End among the stops of a list, of which one is in the tab order. */
export function rove(event: KeyboardEvent<HTMLElement>): void {
  const list = event.currentTarget;
  const stops = Array.from(list.querySelectorAll<HTMLElement>(STOP));
  const target = event.target as HTMLElement;
  const stop = target.closest<HTMLElement>(STOP);
  if (!stop || event.ctrlKey || event.metaKey || event.altKey) {
    return;
  }
  const at = stops.indexOf(stop);
  const forward = getComputedStyle(list).direction === 'rtl' ? 'ArrowLeft' : 'ArrowRight';
  const back = forward === 'ArrowRight' ? 'ArrowLeft' : 'ArrowRight';
  const next = {
    ArrowDown: stops[at + 1],
    ArrowUp: stops[at - 1],
    Home: stops[0],
    End: stops[stops.length - 1],
    [forward]: buttonFrom(stop, target, 1),
    [back]: target === stop ? undefined : (buttonFrom(stop, target, -1) ?? stop)
  }[event.key];
  if (next) {
    event.preventDefault();
    event.stopPropagation();
    stops.forEach(other => (other.tabIndex = -1));
    (next.closest<HTMLElement>(STOP) ?? next).tabIndex = 0;
    next.focus();
  }
}

function buttonFrom(stop: HTMLElement, target: HTMLElement, step: number): HTMLElement | undefined {
  const buttons = Array.from(stop.querySelectorAll<HTMLElement>('button:not(:disabled)'));
  const at = buttons.indexOf(target);
  return at < 0 ? (step > 0 ? buttons[0] : undefined) : buttons[at + step];
}

/** What a key means on the row or card itself; null: nothing, or the key went to something inside it. */
export function actionOf(
  event: KeyboardEvent<HTMLElement>,
  look: Look,
  enabled: boolean
): Action | null {
  if (
    !enabled ||
    event.target !== event.currentTarget ||
    event.ctrlKey ||
    event.metaKey ||
    event.altKey
  ) {
    return null;
  }
  const action = KEYS[event.key.toLowerCase()];
  return action && isSensible(action, look) ? action : null;
}

export function opensMenu(event: KeyboardEvent<HTMLElement>): boolean {
  return event.key === 'ContextMenu' || (event.key === 'F10' && event.shiftKey);
}
