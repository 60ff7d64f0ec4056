/* SPDX-License-Identifier: Apache-2.0 */
/*
 * interfaces.h - the network interfaces of this machine, and which of them each library would take: their own rules of selection
 * (nccl src/misc/socket.cc, the same file of rccl, torch's ProcessGroupGloo), applied to what is here and to the environment.
 */
#ifndef UNO_DOCTOR_INTERFACES_H
#define UNO_DOCTOR_INTERFACES_H

#include <stdbool.h>
#include <stdint.h>

enum { INTERFACES = 64, INTERFACE_NAME = 16 };

struct interface {
    char name[INTERFACE_NAME], address[48]; /* "" = not told: a copy of /sys has no addresses */
    uint32_t ip, mask;                      /* of IPv4, in network order; 0 = IPv6 only */
    long mbit, mtu;                         /* -1 = not told */
    bool running, loopback;
};

/* Fill v with interfaces that are up, in the kernel's order, each once, IPv4 before IPv6. root: as in machine.h. Returns how many. */
int interfaces_of(const char *root, struct interface v[INTERFACES]);

enum library { LIBRARY_UNISONO, LIBRARY_NCCL, LIBRARY_RCCL, LIBRARY_GLOO, LIBRARIES };
extern const char *const library_names[LIBRARIES];

/* Where a library's choice comes from, in words; chosen[]: indexes into v in its order, the first is what others are told. */
struct choice {
    int chosen[16], n; /* n = 0: it would fail */
    const char *why;   /* "" = its own rule; else the variable */
    bool by_name;      /* Gloo: the address of the own name */
    char wanted[64];   /* what was looked for and is not there */
};
struct choice interface_choice(enum library lib, const struct interface *v, int n);

/* A bridge, a tunnel or a container's end: reaches nobody on another host, or goes round. */
bool interface_is_virtual(const char *name);

#endif
