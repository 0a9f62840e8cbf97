/* device.c - the table of devices. */
#include "device/device.h"

#define RA__DEVICE(name) extern const struct ra__device ra__device_##name;
#include "device/device.list"
#undef RA__DEVICE

static const struct ra__device *const devices[] = {
#define RA__DEVICE(name) &ra__device_##name,
#include "device/device.list"
#undef RA__DEVICE
};

const struct ra__device *ra__device_at(int index)
{
    return index >= 0 && index < RA__COUNT(devices) ? devices[index] : NULL;
}
