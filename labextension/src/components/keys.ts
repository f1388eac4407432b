/** Keyboard use of lists and cards. */
import { FocusEvent, KeyboardEvent, RefObject, useEffect, useRef } from 'react';

import { Action, isSensible, KEYS } from '../actions';
import { Look } from '../states';
import { ISession } from '../tokens';

const STOP = '[data-stop]';

interface IRoving {
  ref: RefObject<HTMLDivElement>;
  onKeyDown(event: KeyboardEvent<HTMLElement>): void;
  onFocus(event: FocusEvent<HTMLElement>): void;
}

/** A list that is one stop of the tab order, wherever in it the focus was last; arrow keys move inside. */
export function useRoving(): IRoving {
  const ref = useRef<HTMLDivElement>(null);
  useEffect(() => {
    // After each drawing: the row that was the stop may be gone.
    if (ref.current && !ref.current.querySelector(`${STOP}[tabindex="0"]`)) {
      ref.current.querySelector(STOP)?.setAttribute('tabindex', '0');
    }
  });
  return { ref, onKeyDown: rove, onFocus: keepOneStop };
}

export function keepOneStop({ currentTarget, target }: FocusEvent<HTMLElement>): void {
  const stop = target.closest<HTMLElement>(STOP);
  stopsOf(currentTarget).forEach(other => (other.tabIndex = other === stop ? 0 : -1));
}

function stopsOf(list: HTMLElement): HTMLElement[] {
  return Array.from(list.querySelectorAll<HTMLElement>(STOP));
}

/** Arrow keys, Home and End; along the line into the buttons of a row and back out. */
function rove(event: KeyboardEvent<HTMLElement>): void {
  const list = event.currentTarget;
  const stops = stopsOf(list);
  const target = event.target as HTMLElement;
  const stop = target.closest<HTMLElement>(STOP);
  if (!stop || event.ctrlKey || event.metaKey || event.altKey) {
    return;
  }
  const at = stops.indexOf(stop);
  const rightToLeft = getComputedStyle(list).direction === 'rtl';
  const next = {
    ArrowDown: stops[at + 1],
    ArrowUp: stops[at - 1],
    Home: stops[0],
    End: stops[stops.length - 1],
    [rightToLeft ? 'ArrowLeft' : 'ArrowRight']: buttonFrom(stop, target, 1),
    [rightToLeft ? 'ArrowRight' : 'ArrowLeft']:
      target === stop ? undefined : (buttonFrom(stop, target, -1) ?? stop)
  }[event.key];
  if (next) {
    event.preventDefault();
    event.stopPropagation();
    next.focus();
  }
}

export function buttonFrom(
  stop: HTMLElement,
  target: HTMLElement,
  step: number
): HTMLElement | undefined {
  const buttons = Array.from(stop.querySelectorAll<HTMLElement>('button:not(:disabled)'));
  const at = buttons.indexOf(target);
  return at < 0 ? (step > 0 ? buttons[0] : undefined) : buttons[at + step];
}

/** What a key means on the row or card itself; null: nothing, or the key went to something inside it. */
export function actionOf(
  event: KeyboardEvent<HTMLElement>,
  look: Look,
  session: ISession
): Action | null {
  if (event.target !== event.currentTarget || event.ctrlKey || event.metaKey || event.altKey) {
    return null;
  }
  const action = KEYS[event.key.toLowerCase()];
  return action && isSensible(action, look, session) ? action : null;
}

export function opensMenu(event: KeyboardEvent<HTMLElement>): boolean {
  return event.key === 'ContextMenu' || (event.key === 'F10' && event.shiftKey);
}
