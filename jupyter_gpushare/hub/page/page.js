// The hub's overview: what `status` and `history` say to whoever looks, drawn anew every few seconds.

const POLL_MS = 3000;
const HISTORY_MS = 60000;
const GIB = 2 ** 30;
const xsrf = document.querySelector('meta[name="xsrf"]').content;
const at = id => document.getElementById(id);
const percent = value => (value === null ? 'n/a' : `${Math.round(100 * value)} %`);
const gib = value => (value === null ? 'n/a' : `${(value / GIB).toFixed(1)} GiB`);

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

function shares(device) {
  const made = document.createElement('meter');
  made.value = device.allocated ?? 0;
  made.title = `${percent(device.allocated)} of GPU ${device.index}`;
  const both = document.createElement('span');
  both.append(made, ` ${percent(device.allocated)}`);
  return both;
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
        `${device.index}: ${device.model}`,
        device.in_pool ? device.state : `not lent: ${device.reason ?? 'outside the pool'}`,
        shares(device),
        percent(device.utilization),
        `${gib(device.memory_used)} of ${gib(device.memory_total)}`,
        drain(device, status.admin)
      )
    )
  );
  at('devices').replaceChildren(...(rows.length ? rows : [empty(7, 'No GPU server has reported yet.')]));
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
        session.state + (session.queue_position === null ? '' : `, place ${session.queue_position}`),
        session.devices.map(device => names.get(device.uuid) ?? device.uuid).join('; '),
        session.devices.map(device => percent(device.share)).join('; '),
        session.message ?? ''
      )
    );
  at('sessions').replaceChildren(...(rows.length ? rows : [empty(6, 'None.')]));
}

function draw(status) {
  const { devices, free, waiting } = status.summary;
  at('simulated').hidden = !status.simulated;
  at('summary').textContent =
    `${devices} GPUs, ${free.toFixed(1)} free, ${waiting} waiting. ` +
    `You are ${status.user}${status.admin ? ', an administrator' : ''}.`;
  at('degraded').replaceChildren(...status.degraded.map(finding => cell(finding.message, 'li')));
  drawServers(status);
  drawSessions(status);
}

async function look() {
  draw(await ask('GET', 'status'));
}

async function lookBack() {
  const { by_user, by_group } = await ask('GET', 'history');
  const lines = [
    ...Object.entries(by_group).map(([name, seconds]) => [`group ${name}`, seconds]),
    ...Object.entries(by_user)
  ];
  const rows = lines.map(([name, seconds]) => {
    const hours = cell((seconds / 3600).toFixed(1));
    hours.className = 'number';
    return row(cell(name, 'th'), hours);
  });
  at('usage').replaceChildren(...(rows.length ? rows : [empty(2, 'None.')]));
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
