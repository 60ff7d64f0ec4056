/* SPDX-License-Identifier: Apache-2.0 */
/* pci.c - see pci.h. */
#include "pci.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "machine.h"

/* Graphics and accelerators of the two makers whose libraries this is about; a board's own display (of its maintenance processor) is none. */
static enum pci_kind kind_of(const struct pci_device *d)
{
    unsigned base = d->class >> 16;
    if (d->class >> 8 == 0x0604)
        return PCI_BRIDGE;
    if ((base == 0x03 || base == 0x12) && (d->vendor == VENDOR_NVIDIA || d->vendor == VENDOR_AMD))
        return PCI_GPU;
    return base == 0x02 ? PCI_NIC : PCI_OTHER;
}

const char *pci_maker(const struct pci_device *d)
{
    return d->vendor == VENDOR_NVIDIA ? "NVIDIA" : d->vendor == VENDOR_AMD ? "AMD" : "other";
}

static int index_of(const struct pci_tree *t, const char *busid, size_t bytes)
{
    for (int i = 0; i < t->n; i++)
        if (strlen(t->v[i].busid) == bytes && memcmp(t->v[i].busid, busid, bytes) == 0)
            return i;
    return -1;
}

/* A device's link leads to ".../pci0000:16/0000:16:02.0/0000:17:00.0": the folder above is the bridge it is behind. */
static int parent_of(const struct pci_tree *t, const char *root, const char *busid)
{
    char path[4200], to[4200];
    snprintf(path, sizeof path, "%s/sys/bus/pci/devices/%s", root, busid);
    ssize_t n = readlink(path, to, sizeof to - 1);
    if (n <= 0)
        return -1;
    to[n] = 0;
    char *last = strrchr(to, '/');
    if (!last)
        return -1;
    *last = 0;
    char *above = strrchr(to, '/');
    above = above ? above + 1 : to;
    return index_of(t, above, strlen(above));
}

struct pci_tree pci_tree_of(const char *root)
{
    struct pci_tree t = {0};
    char (*names)[KERNEL_NAME] = malloc(PCI_MOST * sizeof *names);
    int n = names ? kernel_names(root, names, PCI_MOST, "/sys/bus/pci/devices") : 0;
    t.v = n ? calloc((size_t)n, sizeof *t.v) : NULL;
    for (int i = 0; t.v && i < n; i++) {
        struct pci_device *d = &t.v[t.n];
        if (strlen(names[i]) >= sizeof d->busid)
            continue;
        memcpy(d->busid, names[i], strlen(names[i]) + 1);
        d->class = (unsigned)kernel_number(root, 0, "/sys/bus/pci/devices/%s/class", names[i]);
        d->vendor = (unsigned)kernel_number(root, 0, "/sys/bus/pci/devices/%s/vendor", names[i]);
        d->device = (unsigned)kernel_number(root, 0, "/sys/bus/pci/devices/%s/device", names[i]);
        d->numa = (int)kernel_number(root, -1, "/sys/bus/pci/devices/%s/numa_node", names[i]);
        d->kind = kind_of(d);
        t.n++;
    }
    free(names);
    for (int i = 0; i < t.n; i++)
        t.v[i].parent = parent_of(&t, root, t.v[i].busid);
    return t;
}

void pci_tree_free(struct pci_tree *t)
{
    free(t->v);
    *t = (struct pci_tree){0};
}
