/* SPDX-License-Identifier: Apache-2.0 */
/* pci.h - the PCI devices of this machine, or of a copy of its /sys, as the tree that they hang in. */
#ifndef UNO_DOCTOR_PCI_H
#define UNO_DOCTOR_PCI_H

#include <stdbool.h>

enum pci_kind { PCI_OTHER, PCI_BRIDGE, PCI_GPU, PCI_NIC };
enum { VENDOR_NVIDIA = 0x10de, VENDOR_AMD = 0x1002, PCI_MOST = 4096 };

struct pci_device {
    char busid[16]; /* "0000:17:00.0" */
    enum pci_kind kind;
    unsigned class, vendor, device;
    int parent; /* index of the bridge it is behind, -1 = at the root complex */
    int numa;   /* -1 = not told */
};

struct pci_tree {
    struct pci_device *v; /* in order of their ids */
    int n;
};

struct pci_tree pci_tree_of(const char *root); /* empty without devices or memory */
void pci_tree_free(struct pci_tree *t);

const char *pci_maker(const struct pci_device *d);

#endif
