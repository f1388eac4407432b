// The hub's overview: what `status` and `history` say to whoever looks, drawn anew every few seconds.

const POLL_MS = 3000;
const HISTORY_MS = 60000;
const GIB = 2 ** 30;
const xsrf = document.querySelector('meta[name="xsrf"]').content;
const at = id => document.getElementById(id);
const UNREAD = '–';
const percent = value => (value === null ? UNREAD : `${Math.round(100 * value)}%`);
const gib = value => (value === null ? UNREAD : (value / GIB).toFixed(0));
const amount = devices => String(Math.round(100 * devices) / 100);
const model = name => name.replace(/^NVIDIA /, '').replace(/-(SXM|PCIE)\d*-/i, ' ');
const minutes = seconds => (seconds < 60 ? 'under a minute' : `${Math.round(seconds / 60)} min`);
const STATES = {
  waiting: 'In line',
  bound: 'Ready',
  active: 'Computing',
  idle: 'Idle',
  parking: 'Being parked',
  parked: 'Parked',
  resuming: 'Coming back',
  none: 'No GPU'
};

async function ask(method, path) {
  const answer = await fetch(`api/v1/${path}`, { method, headers: { 'X-XSRFToken': xsrf } });
  const text = await answer.text();
  const body = text ? JSON.parse(text) : null;
  if (!answer.ok) {
    throw Object.assign(new Error(body?.message ?? `The service answered ${answer.status}.`), { status: answer.status });
  }
  return body;
}

function cell(content, kind = 'td') {
  const made = document.createElement(kind);
  made.append(content);
  return made;
}

function row(...cells) {
  const made = document.createElement('tr');
  made.append(...cells.map(one => (one instanceof HTMLTableCellElement ? one : cell(one))));
  return made;
}

function empty(columns, words) {
  const made = cell(words);
  made.colSpan = columns;
  return row(made);
}

/** A bar with its value in words beside it. */
function bar(fraction, words) {
  const made = document.createElement('span');
  made.className = 'bar';
  made.ariaHidden = 'true';
  made.style.setProperty('--part', Math.min(1, fraction ?? 0));
  const both = document.createElement('span');
  both.className = 'both';
  both.append(made, words);
  return both;
}

function number(content) {
  const made = cell(content);
  made.className = 'number';
  return made;
}

function drain(device, admin) {
  if (!admin) {
    return '';
  }
  const verb = device.state === 'draining' ? 'undrain' : 'drain';
  const made = document.createElement('button');
  made.textContent = verb === 'drain' ? 'Drain' : 'Offer again';
  made.ariaLabel = `${made.textContent}: GPU ${device.index}`;
  made.addEventListener('click', async () => {
    made.disabled = true;
    try {
      await ask('POST', `devices/${encodeURIComponent(device.uuid)}/${verb}`);
      await look();
    } catch (error) {
      at('summary').textContent = error.message;
      made.disabled = false;
    }
  });
  return made;
}

function drawServers(status) {
  const rows = status.servers.flatMap(server =>
    server.devices.map(device =>
      row(
        cell(server.state === 'up' ? server.name : `${server.name} (${server.state})`, 'th'),
        `GPU ${device.index}, ${model(device.model)}`,
        bar(device.allocated, percent(device.allocated)),
        number(percent(device.utilization)),
        number(`${gib(device.memory_used)} / ${gib(device.memory_total)} GiB`),
        number(device.temperature_c === null ? UNREAD : `${Math.round(device.temperature_c)} °C`),
        number(device.power_w === null ? UNREAD : `${Math.round(device.power_w)} W`),
        device.in_pool && device.state === 'healthy'
          ? ''
          : device.in_pool
            ? device.state
            : `not lent: ${device.reason ?? 'outside the pool'}`,
        drain(device, status.admin)
      )
    )
  );
  at('devices').replaceChildren(...(rows.length ? rows : [empty(9, 'No GPU server has reported yet.')]));
}

/** A session's state, with its place in line or how long it has been idle. */
function said(session) {
  const word = STATES[session.state] ?? session.state;
  const more =
    session.queue_position !== null
      ? `place ${session.queue_position}`
      : session.idle_s >= 60
        ? minutes(session.idle_s)
        : '';
  return [word, more].filter(Boolean).join(', ');
}

/** Where pressure is and what is wasted, in one sentence. */
function headline(status) {
  const { devices, free, waiting } = status.summary;
  const idle = status.sessions
    .filter(session => session.state === 'idle')
    .flatMap(session => session.devices)
    .reduce((sum, device) => sum + device.share, 0);
  const held = `${amount(idle)} ${idle === 1 ? 'GPU is' : 'GPUs are'} held idle`;
  if (waiting > 0) {
    return `${waiting} ${waiting === 1 ? 'waits' : 'wait'} while ${held}.`;
  }
  return `${amount(free)} of ${devices} GPUs free; nobody waits.`;
}

function drawSessions(status) {
  const names = new Map(
    status.servers.flatMap(server =>
      server.devices.map(device => [device.uuid, `${server.name}, GPU ${device.index}`])
    )
  );
  const rows = status.sessions
    .filter(session => session.state !== 'dead')
    .map(session =>
      row(
        cell(session.user, 'th'),
        session.label,
        said(session),
        session.devices.map(device => names.get(device.uuid) ?? device.uuid).join('; '),
        number(session.devices.map(device => percent(device.share)).join('; ')),
        session.message ?? ''
      )
    );
  at('sessions').replaceChildren(...(rows.length ? rows : [empty(6, 'None.')]));
}

function draw(status) {
  at('simulated').hidden = !status.simulated;
  at('summary').textContent = headline(status);
  at('who').textContent = status.admin ? `${status.user} · admin view` : status.user;
  at('degraded').replaceChildren(...status.degraded.map(finding => cell(finding.message, 'li')));
  drawServers(status);
  drawSessions(status);
}

async function look() {
  draw(await ask('GET', 'status'));
}

async function lookBack() {
  const { by_user, by_group } = await ask('GET', 'history');
  const sums = (from, say) =>
    Object.entries(from)
      .sort((a, b) => b[1] - a[1])
      .map(([name, seconds]) => [say(name), seconds, seconds / Math.max(...Object.values(from))]);
  const lines = [...sums(by_group, name => `group ${name}`), ...sums(by_user, name => name)];
  const rows = lines.map(([name, seconds, part]) =>
    row(cell(name, 'th'), bar(part, ''), number((seconds / 3600).toFixed(1)))
  );
  at('usage').replaceChildren(...(rows.length ? rows : [empty(3, 'None.')]));
}

// Looks again and again, while somebody can see it; twice as late after each failure.
async function keep(act, everyMs) {
  let pause = everyMs;
  for (;;) {
    if (!document.hidden) {
      try {
        await act();
        pause = everyMs;
      } catch (error) {
        if (error.status === 403) {
          location.reload(); // the login has ended
          return;
        }
        at('summary').textContent = `${error.message} It is asked again by itself.`;
        pause = Math.min(2 * pause, 10 * everyMs);
      }
    }
    await new Promise(resolve => setTimeout(resolve, pause));
  }
}

keep(look, POLL_MS);
keep(lookBack, HISTORY_MS);
