/* SPDX-License-Identifier: Apache-2.0 */
/* devices.c - the devices of this machine, by the names that --device takes. */
#include "devices.h"

#include <string.h>

#include "harness/text/text.h"

bool devices_are_alike(const char *device, const char *kind)
{
    const size_t stem = strcspn(device, ":");
    return strcspn(kind, ":") == stem && !strncmp(device, kind, stem);
}

/* Does `name` name the device `own`? */
static bool is_named(const char *own, const char *name)
{
    const size_t letters = strlen(name);
    if (!letters) return true; /* the default comes first */
    return !strncmp(own, name, letters) && (!own[letters] || !strcmp(own + letters, ":0"));
}

bool devices_find(const char *name, ra_device *out)
{
    ra_device device = ra_device_default();
    for (int i = 0; ra_device_at(i, &device) == RA_OK; i++) {
        if (!is_named(device.device, name)) continue;
        *out = device;
        return true;
    }
    return false;
}

int devices_check(const char *what, const char *name)
{
    ra_device device = ra_device_default();
    bool listed = false;
    if (devices_find(name, &device)) return EXIT_PASS;
    for (int i = 0; ra_device_at(i, &device) == RA_OK; i++)
        listed = listed || devices_are_alike(device.device, name);
    if (!listed) return EXIT_PASS; /* it does not tell */
    return refuse("%s: there is no %s here; `ringattn info` lists devices", what, name);
}

int devices_check_kernel(const char *device, const char *kernel)
{
    struct string names = { .lost = false };
    ra_part part = ra_part_default();
    bool found = !*kernel;
    int status = EXIT_PASS;
    for (int i = 0; !found && ra_device_kernel_at(*device ? device : NULL, i, &part) == RA_OK;
         i++) {
        found = !strcmp(part.name, kernel);
        string_add(&names, "%s%s", i ? ", " : "", part.name);
    }
    if (!found && names.s) /* otherwise it does not tell */
        status = refuse("--kernel: device %s has no kernel \"%.40s\"; it has %s",
                        *device ? device : "cpu", kernel, names.s);
    string_free(&names);
    return status;
}

ra_dtype devices_dtype(const char *name)
{
    ra_device device;
    return devices_find(name, &device) ? device.dtype : RA_F32;
}
