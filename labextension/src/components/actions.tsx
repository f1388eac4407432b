/** Buttons that ask the server for something, and say so in their own place when it says no. */
import { useEffect, useRef, useState } from 'react';

import { Action, actionLabel } from '../actions';
import { Look } from '../states';
import { ISession } from '../tokens';
import { useUi } from './context';
import { Icon } from './marks';

const REFUSAL_MS = 10000;

type Answer = { kind: 'idle' } | { kind: 'asked' } | { kind: 'refused'; message: string };

/** `act` with its answer: asked until the server speaks, then what it refused for ten seconds. */
export function useAct(session: string): [Answer, (action: Action) => void] {
  const { act } = useUi();
  const [answer, setAnswer] = useState<Answer>({ kind: 'idle' });
  const mounted = useRef(true);
  useEffect(() => {
    mounted.current = true;
    return () => void (mounted.current = false);
  }, []);
  useEffect(() => {
    if (answer.kind === 'refused') {
      const timer = setTimeout(() => setAnswer({ kind: 'idle' }), REFUSAL_MS);
      return () => clearTimeout(timer);
    }
    return undefined;
  }, [answer]);
  const ask = (action: Action): void => {
    setAnswer({ kind: 'asked' });
    act(action, session).then(
      () => mounted.current && setAnswer({ kind: 'idle' }),
      (error: Error) => mounted.current && setAnswer({ kind: 'refused', message: error.message })
    );
  };
  return [answer, ask];
}

interface IButtonProps {
  action: Action;
  session: ISession;
  look: Look;
  /** Out of the tab order: reached with the arrow keys. */
  inRow?: boolean;
  primary?: boolean;
}

export function ActionButton({
  action,
  session,
  look,
  inRow = false,
  primary = false
}: IButtonProps): JSX.Element {
  const { trans, snapshot } = useUi();
  const [answer, ask] = useAct(session.id);
  if (answer.kind === 'refused') {
    return (
      <span className="jp-GPUShare-refusal" role="status">
        {answer.message}
      </span>
    );
  }
  const gone = snapshot.kind === 'gone';
  return (
    <button
      type="button"
      className={primary ? 'jp-GPUShare-button jp-GPUShare-primary' : 'jp-GPUShare-button'}
      data-action={action}
      tabIndex={inRow ? -1 : undefined}
      disabled={gone || answer.kind === 'asked'}
      title={gone ? trans.__('The GPU service does not answer.') : undefined}
      onClick={() => ask(action)}
    >
      {actionLabel(action, look, trans)}
    </button>
  );
}

export function MoreButton({
  session,
  inRow = false
}: {
  session: ISession;
  inRow?: boolean;
}): JSX.Element {
  const { trans, openMenu } = useUi();
  const label = trans.__('More actions');
  return (
    <button
      type="button"
      className="jp-GPUShare-iconButton jp-GPUShare-more"
      aria-label={label}
      aria-haspopup="menu"
      title={label}
      tabIndex={inRow ? -1 : undefined}
      onClick={event => openMenu(session, event.currentTarget)}
    >
      <Icon name="more" />
    </button>
  );
}
