import { act } from '@testing-library/react';
import { Signal } from '@lumino/signaling';
import { Widget } from '@lumino/widgets';

import { IHost } from '../live';
import { GPUSharePanel } from '../panel';
import { device, session, snapshot, status, trans } from './builders';

function panel(): GPUSharePanel {
  const of = {};
  const seen = snapshot(status([session('idle', { idle_s: 3 })], [device(0), device(1)]));
  const shown = new GPUSharePanel({
    model: { snapshot: seen, changed: new Signal(of), retry: () => undefined },
    focus: { kernel: 'k1', changed: new Signal(of) },
    trans,
    preferences: { rowKeys: true, banners: {}, notifications: {} },
    act: () => Promise.resolve(),
    openMenu: () => undefined,
    reveal: () => undefined,
    openPanel: () => undefined
  } as unknown as IHost);
  act(() => Widget.attach(shown, document.body));
  return shown;
}

describe('a panel just opened', () => {
  it('has the focus on the card of the notebook in front', async () => {
    const shown = panel();
    await act(() => shown.focusFirst());
    expect(document.activeElement?.className).toBe('jp-GPUShare-card');
    act(() => shown.dispose());
  });

  it('leaves the focus where the person put it meanwhile', async () => {
    const shown = panel();
    await act(async () => {
      const focused = shown.focusFirst();
      await shown.renderPromise;
      shown.node.querySelector<HTMLElement>('.jp-GPUShare-tile')?.focus();
      await focused;
    });
    expect(document.activeElement?.className).toBe('jp-GPUShare-tile');
    act(() => shown.dispose());
  });
});
