/** Every other notebook: two lines. */
import { KeyboardEvent } from 'react';

import { rowActions } from '../actions';
import { appearance, Look } from '../states';
import { ISession } from '../tokens';
import { ActionButton, MoreButton, useAct } from './actions';
import { ShareBar } from './bars';
import { useMoment, useUi } from './context';
import { actionOf, opensMenu, useRoving } from './keys';
import { Glyph, Name, Rich } from './marks';
import { VirtualList } from './virtual';

const WITH_BAR: Look[] = ['bound', 'active', 'idle', 'warned', 'pinned'];

const MANY = 60; // beyond, rows are all of one height and only those in sight are drawn
const ROW_PX = 58;

interface IRowsProps {
  sessions: ISession[];
  label: string;
}

const keyOf = (session: ISession): string => session.id;
const heightOf = (): number => ROW_PX;
const textOf = (session: ISession): string => session.label;

export function Rows(props: IRowsProps): JSX.Element {
  return props.sessions.length > MANY ? (
    <VirtualList
      items={props.sessions}
      keyOf={keyOf}
      heightOf={heightOf}
      textOf={textOf}
      draw={session => <Row key={session.id} session={session} fixed />}
      role="list"
      label={props.label}
      className="jp-GPUShare-rows"
    />
  ) : (
    <FewRows {...props} />
  );
}

function FewRows({ sessions, label }: IRowsProps): JSX.Element {
  const roving = useRoving();
  return (
    <div className="jp-GPUShare-rows" role="list" aria-label={label} {...roving}>
      {sessions.map(session => (
        <Row key={session.id} session={session} />
      ))}
    </div>
  );
}

function Row({ session, fixed }: { session: ISession; fixed?: boolean }): JSX.Element {
  const { trans, snapshot, openMenu, reveal, rowKeys, offered } = useUi();
  const [answer, ask] = useAct(session.id);
  const { look, label, word, figure } = appearance(session, useMoment(), trans);
  const gone = snapshot.kind === 'gone';
  const text = gone ? trans.__('Last seen: %1', word) : word;
  const plain = text.replaceAll('**', '');
  const owner = session.mine ? '' : ` · ${session.user}`;
  const onKeyDown = (event: KeyboardEvent<HTMLElement>): void => {
    const action = rowKeys && !gone ? actionOf(event, look, session) : null;
    if (action) {
      ask(action);
    } else if (opensMenu(event)) {
      openMenu(session, event.currentTarget);
    } else if (event.key === 'Enter' && event.target === event.currentTarget) {
      reveal(session);
    } else {
      return;
    }
    event.preventDefault();
  };
  const actions = fixed ? [] : rowActions(look).filter(one => offered?.includes(one) ?? true);
  return (
    <div
      className="jp-GPUShare-row"
      role="listitem"
      data-stop
      data-key={session.id}
      data-fixed={fixed || undefined}
      data-session={session.id}
      data-state={session.state}
      data-look={look}
      data-stale={gone || undefined}
      tabIndex={-1}
      aria-label={[session.label, plain, figure].filter(Boolean).join(', ')}
      onKeyDown={onKeyDown}
      onContextMenu={event => {
        event.preventDefault();
        event.stopPropagation();
        openMenu(session, event.currentTarget);
      }}
      onDoubleClick={() => reveal(session)}
    >
      <Glyph look={look} label={label} />
      <Name label={session.label} title={session.path ?? session.label} />
      <span className="jp-GPUShare-percent">{figure}</span>
      <MoreButton session={session} inRow />
      <span className="jp-GPUShare-word" title={plain + owner}>
        {answer.kind === 'refused' ? (
          <span role="status">{answer.message}</span>
        ) : (
          <Rich text={text + owner} />
        )}
      </span>
      {WITH_BAR.includes(look) && <ShareBar session={session} small />}
      {actions.length > 0 && (
        <div className="jp-GPUShare-actions">
          {actions.map(action => (
            <ActionButton key={action} action={action} session={session} look={look} inRow />
          ))}
        </div>
      )}
    </div>
  );
}
