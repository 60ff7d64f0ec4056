/* SPDX-License-Identifier: Apache-2.0 */
/*
 * net_tcp.h - the TCP carrier as net_end.c sees it: the slow paths of a net_end whose carrier is NET_TCP.
 *
 * All of these are called by the holder of the communicator's walk lock and never block. They only talk to the sockets' side
 * through atomics (net_tcp_inner.h), so that a thread that happens to hold the sockets' lock never makes a walker wait.
 * None of them polls: bytes arrive, and credit with them, only while somebody calls net_progress.
 */
#ifndef UNO_NET_TCP_H
#define UNO_NET_TCP_H

#include "net.h"

/* Make e->tcp for the end (comm_id, source, destination, e->channel) on `link`; e->sending says which side this is. Sets
 * e->released. UNO_ERR_MEMORY; UNO_ERR_UNREACHABLE when the link is already down; then e->tcp stays NULL. */
uno_err tcp_end_new(struct net_end *e, struct net_link *link, uint64_t comm_id, int local_rank, int peer_rank);

/* All of net_end_shape for TCP: does nothing when k and stride are those of the last call; else counts e->shape_no, sets k,
 * stride, slot = 0, heads and payload (fresh memory), and mapped = false for a sender until the receiver's grant for this
 * shape_no is here and everything sent before was released. A receiver grants at once; its earlier messages must be used. */
uno_err tcp_end_shape(struct net_end *e, int k, uint32_t stride);

/* Take over what the sockets' side has learned: e->freed, e->mapped. Sender: may the next slot be filled? Receiver: shaped? */
bool tcp_end_ready(struct net_end *e);

/* Message e->next - 1 was posted: hand it to the sockets; written at once when their lock is free. */
void tcp_end_post(struct net_end *e);

/* Message e->next - 1 was released: grant its slot again. While a caller is inside (net_enter) the grant leaves with the next
 * post, net_progress or net_leave; else at once. */
void tcp_end_release(struct net_end *e);

/* Forget the end; late frames for it are dropped. Its memory goes when no socket is in the middle of it. e->tcp = NULL. */
void tcp_end_free(struct net_end *e);

#endif
