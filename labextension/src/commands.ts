/** Every action as a command: palette, menus and shortcuts speak to the session given, or to the notebook in front. */
import { Notification } from '@jupyterlab/apputils';
import { TranslationBundle } from '@jupyterlab/translation';
import { CommandRegistry } from '@lumino/commands';
import { Menu } from '@lumino/widgets';

import { Action, actionLabel, isSensible, MENU } from './actions';
import { IHost } from './live';
import { Look, lookOf } from './states';
import { ISession } from './tokens';

export const SHOW = 'gpushare:show';

export function commandOf(action: Action): string {
  return `gpushare:${action}`;
}

export const COMMANDS = [SHOW, ...MENU.map(commandOf)];

interface ICommandOptions {
  host: Pick<IHost, 'model' | 'focus' | 'act'>;
  trans: TranslationBundle;
  show(): void;
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
          isSensible(action, found.look, found.session.pinned_until_s !== null)
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

/** Opens the ⋯ menu of a session under (or beside) what asked for it; the focus goes back there. */
export function createMenu(
  commands: CommandRegistry
): (session: ISession, anchor: Element) => void {
  return (session, anchor) => {
    const menu = new Menu({ commands });
    for (const action of MENU) {
      const item = { command: commandOf(action), args: { session: session.id } };
      if (commands.isEnabled(item.command, item.args)) {
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
  };
}
