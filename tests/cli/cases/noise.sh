# SPDX-License-Identifier: Apache-2.0
# Lines that others print on stderr are not the command's.

cat >"$work/noisy" <<END
#!/bin/sh
echo "hwloc/linux: failed to find sysfs cpu topology directory, aborting linux discovery." >&2
exec "$ringattn" "\$@"
END
chmod +x "$work/noisy"
quiet=$ringattn
ringattn=$work/noisy
ok run --tokens 8 --heads 1 --dim 4
refused "there is no flag --frobnicate" run --frobnicate
ringattn=$quiet
