import { ReactNode } from 'react';

import { Glyph } from './components/marks';
import { devices as amount, percent, shortModel } from './format';
import { IHost, LiveWidget } from './live';
import { totals } from './order';
import { appearance, Look } from './states';
import { meanOf, place } from './view';

const WITH_SHARE: Look[] = ['active', 'idle', 'warned', 'pinned'];

/** "GPU 50% of A100 · 0.75 of 4 free"; click opens the panel. Nothing in it blinks. */
export class StatusItem extends LiveWidget {
  constructor(host: IHost) {
    super(host);
    this.addClass('jp-GPUShare-status');
  }

  protected draw(): ReactNode {
    const { model, focus, trans, openPanel } = this.host;
    const { snapshot } = model;
    const { status } = snapshot;
    if (!status) {
      return null;
    }
    const moment = { status, snapshot, now: Date.now() };
    const session = focus.kernel === null ? undefined : status.sessions[focus.kernel];
    const { devices, free } = totals(status);
    const part = session?.devices[0];
    const device = part && place(status, part.uuid)?.device;
    const texts = session && appearance(session, moment, trans);
    const mine =
      session && device && WITH_SHARE.includes(texts?.look ?? 'none')
        ? trans.__(
            'GPU %1 of %2',
            percent(meanOf(session, one => one.share)),
            shortModel(device.model)
          )
        : texts?.short;
    return (
      <button type="button" title={trans.__('Open the GPU panel')} onClick={openPanel}>
        {texts && <Glyph look={texts.look} label={texts.label} />}
        {[mine, trans.__('%1 of %2 free', amount(free), devices)].filter(Boolean).join(' · ')}
      </button>
    );
  }
}
