"""The desired state with pyinfra's own operations, as its documentation would have them."""

from pyinfra import host
from pyinfra.facts.files import File
from pyinfra.operations import apt, files, server, systemd

from benchmarks.desired import FILES, PACKAGES, Desired
from lab.engine import WHEEL

desired = Desired("pyinfra")
NO_LOGIN = "/usr/sbin/nologin"
root, user, value = desired.root, desired.user, host.data.value

apt.packages(name="packages", packages=list(PACKAGES), no_recommends=True)
server.user(name="user", user=user, system=True, home=root, shell=NO_LOGIN, ensure_home=False)
for path in host.loop(desired.directories):
    files.directory(name=f"directory {path}", path=path, user=user, group=user, mode="755")
files.put(name="wheel", src=WHEEL, dest=f"{root}/runtimes/{WHEEL}", mode="644")
files.put(name="model", src="config.json", dest=f"{root}/models/standin/config.json", mode="644")
if not host.get_fact(File, path=f"{desired.venv}/bin/vllm"):
    server.shell(
        name="runtime",
        commands=[
            f"python3 -m venv {desired.venv}",
            f"{desired.venv}/bin/pip install --quiet --no-index {root}/runtimes/{WHEEL}",
        ],
    )
release = [
    files.put(name=name, src=f"{value}/{name}", dest=f"{root}/releases/1/{name}", user=user, group=user, mode="644")
    for name in host.loop(FILES)
]
files.link(name="current", path=f"{root}/current", target=f"{root}/releases/1")
unit = files.put(name="unit", src=f"{value}/{desired.unit}", dest=f"/etc/systemd/system/{desired.unit}", mode="644")
systemd.daemon_reload(name="units", _if=unit.did_change)
systemd.service(name="service", service=desired.unit, running=True, enabled=True)
systemd.service(
    name="restart",
    service=desired.unit,
    restarted=True,
    _if=lambda: any(each.did_change() for each in [*release, unit]),
)
