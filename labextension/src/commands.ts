/** Every action as a command: palette, menus and shortcuts speak to the session given, or to the notebook in front. */
import { Clipboard, Notification } from '@jupyterlab/apputils';
import { TranslationBundle } from '@jupyterlab/translation';
import { CommandRegistry } from '@lumino/commands';
import { ReadonlyJSONObject } from '@lumino/coreutils';
import { Menu } from '@lumino/widgets';

import { Action, actionLabel, isSensible, MENU } from './actions';
import { IHost } from './live';
import { IPlace } from './lookup';
import { Look, lookOf } from './states';
import { ISession } from './tokens';
import { place } from './view';

export const SHOW = 'gpushare:show';

export function commandOf(action: Action): string {
  return `gpushare:${action}`;
}

export const COMMANDS = [SHOW, ...MENU.map(commandOf)];

/** What can be done with a device; the draining by admins. */
export const DEVICE_COMMANDS = {
  readings: 'gpushare:readings',
  drain: 'gpushare:drain',
  undrain: 'gpushare:undrain',
  copy: 'gpushare:copy-uuid'
};

interface ICommandOptions {
  host: Pick<IHost, 'model' | 'focus' | 'act'>;
  trans: TranslationBundle;
  show(): Promise<void>;
}

export function addCommands(
  commands: CommandRegistry,
  { host, trans, show }: ICommandOptions
): void {
  const subject = (args: { session?: unknown }): { session: ISession; look: Look } | null => {
    const { snapshot } = host.model;
    const id = typeof args.session === 'string' ? args.session : host.focus.kernel;
    const session = snapshot.status?.sessions[id ?? ''];
    return snapshot.status && session
      ? { session, look: lookOf(session, { status: snapshot.status, snapshot, now: Date.now() }) }
      : null;
  };
  commands.addCommand(SHOW, {
    label: trans.__('GPU Share'),
    caption: trans.__('Open or leave the GPU panel'),
    execute: show
  });
  for (const action of MENU) {
    commands.addCommand(commandOf(action), {
      label: args => actionLabel(action, subject(args)?.look ?? 'idle', trans),
      isEnabled: args => {
        const found = subject(args);
        return (
          found !== null &&
          host.model.snapshot.kind === 'ready' &&
          isSensible(action, found.look, found.session)
        );
      },
      execute: async args => {
        const found = subject(args);
        if (found) {
          await host
            .act(action, found.session.id)
            .catch((error: Error) => Notification.error(error.message));
        }
      }
    });
  }
}

interface IDeviceOptions {
  host: Pick<IHost, 'model'>;
  trans: TranslationBundle;
  /** Rejects with what the server said. */
  drain(place: IPlace, drained: boolean): Promise<void>;
  /** Shows its last hour; null: of whichever was shown last. */
  lookBack(device: string | null): void;
}

export function addDeviceCommands(
  commands: CommandRegistry,
  { host, trans, drain, lookBack }: IDeviceOptions
): void {
  const subject = (args: { device?: unknown }): IPlace | null => {
    const { status } = host.model.snapshot;
    return status && typeof args.device === 'string' ? place(status, args.device) : null;
  };
  commands.addCommand(DEVICE_COMMANDS.readings, {
    label: args =>
      typeof args.device === 'string' ? trans.__('Last hour') : trans.__('Last hour of the GPUs'),
    caption: trans.__('Use, temperature, power, PCIe and NVLink over time'),
    execute: args => lookBack(subject(args)?.device.uuid ?? null)
  });
  for (const drained of [true, false]) {
    commands.addCommand(drained ? DEVICE_COMMANDS.drain : DEVICE_COMMANDS.undrain, {
      label: drained ? trans.__('Drain…') : trans.__('Offer again'),
      caption: drained
        ? trans.__('Let nothing new start on this GPU, and empty it')
        : trans.__('End the draining of this GPU'),
      isEnabled: args => host.model.snapshot.kind === 'ready' && subject(args) !== null,
      isVisible: args =>
        host.model.snapshot.status?.admin === true &&
        (subject(args)?.device.state === 'draining') !== drained,
      execute: async args => {
        const found = subject(args);
        if (found) {
          await drain(found, drained).catch((error: Error) => Notification.error(error.message));
        }
      }
    });
  }
  commands.addCommand(DEVICE_COMMANDS.copy, {
    label: trans.__('Copy UUID'),
    isEnabled: args => subject(args) !== null,
    execute: args => Clipboard.copyToSystem(subject(args)?.device.uuid ?? '')
  });
}

/** Opens a menu under (or inside a large) what asked for it; the focus goes back there. */
function openMenu(
  commands: CommandRegistry,
  items: { command: string; args: ReadonlyJSONObject }[],
  anchor: Element
): void {
  const menu = new Menu({ commands });
  for (const item of items) {
    if (
      commands.isEnabled(item.command, item.args) &&
      commands.isVisible(item.command, item.args)
    ) {
      menu.addItem(item);
    }
  }
  if (menu.items.length === 0) {
    return;
  }
  menu.aboutToClose.connect(() => {
    if (anchor instanceof HTMLElement) {
      anchor.focus();
    }
  });
  const { left, bottom, top, height } = anchor.getBoundingClientRect();
  menu.open(left, height > 60 ? top + 24 : bottom);
}

/** Opens the ⋯ menu of a session. */
export function createMenu(
  commands: CommandRegistry
): (session: ISession, anchor: Element) => void {
  return ({ id }, anchor) =>
    openMenu(
      commands,
      MENU.map(action => ({ command: commandOf(action), args: { session: id } })),
      anchor
    );
}

/** Opens the menu of a device. */
export function createDeviceMenu(
  commands: CommandRegistry
): (device: string, anchor: Element) => void {
  return (device, anchor) =>
    openMenu(
      commands,
      Object.values(DEVICE_COMMANDS).map(command => ({ command, args: { device } })),
      anchor
    );
}
