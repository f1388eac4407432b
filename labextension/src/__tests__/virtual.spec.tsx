import { act, fireEvent, render, screen } from '@testing-library/react';

import { VirtualList } from '../components/virtual';

const ITEMS = Array.from({ length: 1000 }, (_, index) => `line ${index}`);
const HEIGHT = 20;

/** A list in a scroller 400 px high; jsdom lays nothing out, so the scroller tells where the list is. */
function show(): HTMLElement {
  const { container } = render(
    <div data-scrolls>
      <VirtualList
        items={ITEMS}
        keyOf={String}
        heightOf={() => HEIGHT}
        textOf={String}
        role="list"
        label="Lines"
        draw={item => (
          <div key={item} role="listitem" data-stop data-key={item} tabIndex={-1}>
            {item}
          </div>
        )}
      />
    </div>
  );
  const scroller = container.firstElementChild as HTMLElement;
  const list = scroller.firstElementChild as HTMLElement;
  Object.defineProperty(scroller, 'clientHeight', { value: 400 });
  scroller.getBoundingClientRect = () => ({ top: 0 }) as DOMRect;
  list.getBoundingClientRect = () => ({ top: -scroller.scrollTop }) as DOMRect;
  act(() => void fireEvent.scroll(scroller));
  return scroller;
}

test('only the lines in sight are drawn, and the list is as long as all of them', () => {
  const scroller = show();
  const drawn = screen.getAllByRole('listitem');
  expect(drawn.length).toBeLessThan(60);
  expect(drawn[0].textContent).toBe('line 0');
  scroller.scrollTop = 500 * HEIGHT;
  fireEvent.scroll(scroller);
  expect(screen.getByText('line 500')).toBeTruthy();
  expect(screen.queryByText('line 0')).toBeNull();
  const list = screen.getByRole('list');
  const padding = parseFloat(list.style.paddingBlockStart) + parseFloat(list.style.paddingBlockEnd);
  expect(padding + screen.getAllByRole('listitem').length * HEIGHT).toBe(1000 * HEIGHT);
});

test('arrow keys, Home, End and typed letters reach lines that were not drawn', () => {
  const scroller = show();
  screen.getByText('line 0').focus();
  const press = (key: string): void => {
    fireEvent.keyDown(document.activeElement as Element, { key });
    fireEvent.scroll(scroller);
  };
  press('ArrowDown');
  expect(document.activeElement?.textContent).toBe('line 1');
  press('End');
  expect(document.activeElement?.textContent).toBe('line 999');
  press('ArrowUp');
  expect(document.activeElement?.textContent).toBe('line 998');
  press('Home');
  expect(document.activeElement?.textContent).toBe('line 0');
});
