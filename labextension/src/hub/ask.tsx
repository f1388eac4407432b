/** A menu and a question of the page's own, by what browsers have for them. */
import { useEffect, useRef } from 'react';

import { useUi } from '../components/context';

export interface IQuestion {
  title: string;
  text: string;
  /** What the button says that does it. */
  label: string;
  yes(): void;
}

/** Asked only where something is lost or taken out of service; Escape is no. */
export function Question({ question, onEnd }: { question: IQuestion; onEnd(): void }): JSX.Element {
  const { trans } = useUi();
  const ref = useRef<HTMLDialogElement>(null);
  useEffect(() => ref.current?.showModal(), []);
  return (
    <dialog ref={ref} className="jp-GPUShare-dialog" aria-labelledby="question" onClose={onEnd}>
      <h2 id="question">{question.title}</h2>
      <p>{question.text}</p>
      <div className="jp-GPUShare-actions">
        <button type="button" className="jp-GPUShare-button" autoFocus onClick={onEnd}>
          {trans.__('Cancel')}
        </button>
        <button
          type="button"
          className="jp-GPUShare-button jp-GPUShare-primary"
          onClick={() => {
            question.yes();
            onEnd();
          }}
        >
          {question.label}
        </button>
      </div>
    </dialog>
  );
}

export interface IMenu {
  items: { key: string; label: string; act(): void }[];
  anchor: Element;
}

/** Under what asked for it; arrow keys move, Escape and a look elsewhere close it. */
export function PopupMenu({ menu, onEnd }: { menu: IMenu; onEnd(): void }): JSX.Element {
  const { trans } = useUi();
  const ref = useRef<HTMLDivElement>(null);
  const { left, right, bottom, top, height } = menu.anchor.getBoundingClientRect();
  const below = height > 60 ? top + 24 : bottom;
  useEffect(() => {
    ref.current?.querySelector('button')?.focus();
    const { anchor } = menu;
    return () => {
      if (anchor instanceof HTMLElement && anchor.isConnected) {
        anchor.focus();
      }
    };
  }, [menu]);
  const move = (step: number): void => {
    const buttons = Array.from(ref.current?.querySelectorAll('button') ?? []);
    const at = buttons.indexOf(document.activeElement as HTMLButtonElement);
    buttons[(at + step + buttons.length) % buttons.length]?.focus();
  };
  return (
    <div
      ref={ref}
      role="menu"
      className="jp-GPUShare-menu"
      aria-label={trans.__('More actions')}
      style={{
        insetBlockStart: Math.min(below, window.innerHeight - 30 * menu.items.length - 12),
        left: Math.max(8, Math.min(left, right - 200, window.innerWidth - 216))
      }}
      onKeyDown={event => {
        const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
        if (step !== undefined) {
          move(step);
        } else if (event.key === 'Escape' || event.key === 'Tab') {
          onEnd();
        } else {
          return;
        }
        event.preventDefault();
      }}
      onBlur={event => {
        if (!event.currentTarget.contains(event.relatedTarget)) {
          onEnd();
        }
      }}
    >
      {menu.items.map(({ key, label, act }) => (
        <button
          key={key}
          type="button"
          role="menuitem"
          tabIndex={-1}
          data-action={key}
          onClick={() => {
            onEnd();
            act();
          }}
        >
          {label}
        </button>
      ))}
    </div>
  );
}
