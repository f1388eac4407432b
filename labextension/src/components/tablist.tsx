/** Tabs inside a view: arrow keys turn, as everywhere. */
import { KeyboardEvent } from 'react';

interface ITabListProps<T extends string> {
  tabs: T[];
  names: Record<T, string>;
  shown: T;
  label: string;
  onTurn(to: T): void;
}

export function TabList<T extends string>(props: ITabListProps<T>): JSX.Element {
  const { tabs, names, shown, label, onTurn } = props;
  const onKeyDown = (event: KeyboardEvent<HTMLElement>): void => {
    const rightToLeft = getComputedStyle(event.currentTarget).direction === 'rtl';
    const step = { ArrowRight: rightToLeft ? -1 : 1, ArrowLeft: rightToLeft ? 1 : -1 }[event.key];
    if (step !== undefined) {
      const at = (tabs.indexOf(shown) + step + tabs.length) % tabs.length;
      event.preventDefault();
      onTurn(tabs[at]);
      event.currentTarget.querySelectorAll<HTMLElement>('[role=tab]')[at].focus();
    }
  };
  return (
    <div className="jp-GPUShare-tabs" role="tablist" aria-label={label} onKeyDown={onKeyDown}>
      {tabs.map(tab => (
        <button
          key={tab}
          type="button"
          role="tab"
          data-tab={tab}
          aria-selected={tab === shown}
          tabIndex={tab === shown ? 0 : -1}
          onClick={() => onTurn(tab)}
        >
          {names[tab]}
        </button>
      ))}
    </div>
  );
}
