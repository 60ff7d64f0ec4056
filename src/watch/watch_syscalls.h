/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch_syscalls.h - names of the system calls in which a program is found waiting, by their number on this machine. Private to
 * watch_proc.c; others are told by number.
 */
#ifndef UNO_WATCH_SYSCALLS_H
#define UNO_WATCH_SYSCALLS_H

#include <sys/syscall.h>

static inline const char *syscall_name(long number)
{
    switch (number) {
#ifdef SYS_read
    case SYS_read: return "read";
#endif
#ifdef SYS_write
    case SYS_write: return "write";
#endif
#ifdef SYS_readv
    case SYS_readv: return "readv";
#endif
#ifdef SYS_writev
    case SYS_writev: return "writev";
#endif
#ifdef SYS_pread64
    case SYS_pread64: return "pread64";
#endif
#ifdef SYS_pwrite64
    case SYS_pwrite64: return "pwrite64";
#endif
#ifdef SYS_open
    case SYS_open: return "open";
#endif
#ifdef SYS_openat
    case SYS_openat: return "openat";
#endif
#ifdef SYS_close
    case SYS_close: return "close";
#endif
#ifdef SYS_poll
    case SYS_poll: return "poll";
#endif
#ifdef SYS_ppoll
    case SYS_ppoll: return "ppoll";
#endif
#ifdef SYS_select
    case SYS_select: return "select";
#endif
#ifdef SYS_pselect6
    case SYS_pselect6: return "pselect6";
#endif
#ifdef SYS_epoll_wait
    case SYS_epoll_wait: return "epoll_wait";
#endif
#ifdef SYS_epoll_pwait
    case SYS_epoll_pwait: return "epoll_pwait";
#endif
#ifdef SYS_epoll_pwait2
    case SYS_epoll_pwait2: return "epoll_pwait2";
#endif
#ifdef SYS_futex
    case SYS_futex: return "futex";
#endif
#ifdef SYS_nanosleep
    case SYS_nanosleep: return "nanosleep";
#endif
#ifdef SYS_clock_nanosleep
    case SYS_clock_nanosleep: return "clock_nanosleep";
#endif
#ifdef SYS_pause
    case SYS_pause: return "pause";
#endif
#ifdef SYS_rt_sigsuspend
    case SYS_rt_sigsuspend: return "rt_sigsuspend";
#endif
#ifdef SYS_rt_sigtimedwait
    case SYS_rt_sigtimedwait: return "rt_sigtimedwait";
#endif
#ifdef SYS_wait4
    case SYS_wait4: return "wait4";
#endif
#ifdef SYS_waitid
    case SYS_waitid: return "waitid";
#endif
#ifdef SYS_accept
    case SYS_accept: return "accept";
#endif
#ifdef SYS_accept4
    case SYS_accept4: return "accept4";
#endif
#ifdef SYS_connect
    case SYS_connect: return "connect";
#endif
#ifdef SYS_recvfrom
    case SYS_recvfrom: return "recvfrom";
#endif
#ifdef SYS_sendto
    case SYS_sendto: return "sendto";
#endif
#ifdef SYS_recvmsg
    case SYS_recvmsg: return "recvmsg";
#endif
#ifdef SYS_sendmsg
    case SYS_sendmsg: return "sendmsg";
#endif
#ifdef SYS_recvmmsg
    case SYS_recvmmsg: return "recvmmsg";
#endif
#ifdef SYS_sendmmsg
    case SYS_sendmmsg: return "sendmmsg";
#endif
#ifdef SYS_fsync
    case SYS_fsync: return "fsync";
#endif
#ifdef SYS_fdatasync
    case SYS_fdatasync: return "fdatasync";
#endif
#ifdef SYS_sync
    case SYS_sync: return "sync";
#endif
#ifdef SYS_syncfs
    case SYS_syncfs: return "syncfs";
#endif
#ifdef SYS_msync
    case SYS_msync: return "msync";
#endif
#ifdef SYS_flock
    case SYS_flock: return "flock";
#endif
#ifdef SYS_fcntl
    case SYS_fcntl: return "fcntl";
#endif
#ifdef SYS_ioctl
    case SYS_ioctl: return "ioctl";
#endif
#ifdef SYS_splice
    case SYS_splice: return "splice";
#endif
#ifdef SYS_tee
    case SYS_tee: return "tee";
#endif
#ifdef SYS_vmsplice
    case SYS_vmsplice: return "vmsplice";
#endif
#ifdef SYS_sendfile
    case SYS_sendfile: return "sendfile";
#endif
#ifdef SYS_copy_file_range
    case SYS_copy_file_range: return "copy_file_range";
#endif
#ifdef SYS_io_getevents
    case SYS_io_getevents: return "io_getevents";
#endif
#ifdef SYS_io_pgetevents
    case SYS_io_pgetevents: return "io_pgetevents";
#endif
#ifdef SYS_io_uring_enter
    case SYS_io_uring_enter: return "io_uring_enter";
#endif
#ifdef SYS_msgrcv
    case SYS_msgrcv: return "msgrcv";
#endif
#ifdef SYS_msgsnd
    case SYS_msgsnd: return "msgsnd";
#endif
#ifdef SYS_semop
    case SYS_semop: return "semop";
#endif
#ifdef SYS_semtimedop
    case SYS_semtimedop: return "semtimedop";
#endif
#ifdef SYS_mq_timedreceive
    case SYS_mq_timedreceive: return "mq_timedreceive";
#endif
#ifdef SYS_mq_timedsend
    case SYS_mq_timedsend: return "mq_timedsend";
#endif
#ifdef SYS_mmap
    case SYS_mmap: return "mmap";
#endif
#ifdef SYS_munmap
    case SYS_munmap: return "munmap";
#endif
#ifdef SYS_mprotect
    case SYS_mprotect: return "mprotect";
#endif
#ifdef SYS_mremap
    case SYS_mremap: return "mremap";
#endif
#ifdef SYS_madvise
    case SYS_madvise: return "madvise";
#endif
#ifdef SYS_brk
    case SYS_brk: return "brk";
#endif
#ifdef SYS_mlock
    case SYS_mlock: return "mlock";
#endif
#ifdef SYS_mlockall
    case SYS_mlockall: return "mlockall";
#endif
#ifdef SYS_execve
    case SYS_execve: return "execve";
#endif
#ifdef SYS_exit
    case SYS_exit: return "exit";
#endif
#ifdef SYS_exit_group
    case SYS_exit_group: return "exit_group";
#endif
#ifdef SYS_clone
    case SYS_clone: return "clone";
#endif
#ifdef SYS_clone3
    case SYS_clone3: return "clone3";
#endif
#ifdef SYS_vfork
    case SYS_vfork: return "vfork";
#endif
#ifdef SYS_fork
    case SYS_fork: return "fork";
#endif
#ifdef SYS_stat
    case SYS_stat: return "stat";
#endif
#ifdef SYS_fstat
    case SYS_fstat: return "fstat";
#endif
#ifdef SYS_lstat
    case SYS_lstat: return "lstat";
#endif
#ifdef SYS_newfstatat
    case SYS_newfstatat: return "newfstatat";
#endif
#ifdef SYS_statx
    case SYS_statx: return "statx";
#endif
#ifdef SYS_access
    case SYS_access: return "access";
#endif
#ifdef SYS_faccessat
    case SYS_faccessat: return "faccessat";
#endif
#ifdef SYS_getdents64
    case SYS_getdents64: return "getdents64";
#endif
#ifdef SYS_unlink
    case SYS_unlink: return "unlink";
#endif
#ifdef SYS_unlinkat
    case SYS_unlinkat: return "unlinkat";
#endif
#ifdef SYS_rename
    case SYS_rename: return "rename";
#endif
#ifdef SYS_renameat
    case SYS_renameat: return "renameat";
#endif
#ifdef SYS_renameat2
    case SYS_renameat2: return "renameat2";
#endif
#ifdef SYS_mkdir
    case SYS_mkdir: return "mkdir";
#endif
#ifdef SYS_mkdirat
    case SYS_mkdirat: return "mkdirat";
#endif
#ifdef SYS_rmdir
    case SYS_rmdir: return "rmdir";
#endif
#ifdef SYS_truncate
    case SYS_truncate: return "truncate";
#endif
#ifdef SYS_ftruncate
    case SYS_ftruncate: return "ftruncate";
#endif
#ifdef SYS_fallocate
    case SYS_fallocate: return "fallocate";
#endif
#ifdef SYS_mount
    case SYS_mount: return "mount";
#endif
#ifdef SYS_umount2
    case SYS_umount2: return "umount2";
#endif
#ifdef SYS_process_vm_readv
    case SYS_process_vm_readv: return "process_vm_readv";
#endif
#ifdef SYS_process_vm_writev
    case SYS_process_vm_writev: return "process_vm_writev";
#endif
#ifdef SYS_ptrace
    case SYS_ptrace: return "ptrace";
#endif
#ifdef SYS_restart_syscall
    case SYS_restart_syscall: return "restart_syscall";
#endif
#ifdef SYS_sched_yield
    case SYS_sched_yield: return "sched_yield";
#endif
#ifdef SYS_membarrier
    case SYS_membarrier: return "membarrier";
#endif
#ifdef SYS_futex_waitv
    case SYS_futex_waitv: return "futex_waitv";
#endif
#ifdef SYS_getrandom
    case SYS_getrandom: return "getrandom";
#endif
#ifdef SYS_inotify_add_watch
    case SYS_inotify_add_watch: return "inotify_add_watch";
#endif
#ifdef SYS_fanotify_mark
    case SYS_fanotify_mark: return "fanotify_mark";
#endif
#ifdef SYS_shutdown
    case SYS_shutdown: return "shutdown";
#endif
#ifdef SYS_setns
    case SYS_setns: return "setns";
#endif
#ifdef SYS_unshare
    case SYS_unshare: return "unshare";
#endif
#ifdef SYS_move_pages
    case SYS_move_pages: return "move_pages";
#endif
#ifdef SYS_mbind
    case SYS_mbind: return "mbind";
#endif
#ifdef SYS_migrate_pages
    case SYS_migrate_pages: return "migrate_pages";
#endif
#ifdef SYS_userfaultfd
    case SYS_userfaultfd: return "userfaultfd";
#endif
#ifdef SYS_bpf
    case SYS_bpf: return "bpf";
#endif
#ifdef SYS_perf_event_open
    case SYS_perf_event_open: return "perf_event_open";
#endif
#ifdef SYS_finit_module
    case SYS_finit_module: return "finit_module";
#endif
#ifdef SYS_kill
    case SYS_kill: return "kill";
#endif
#ifdef SYS_tgkill
    case SYS_tgkill: return "tgkill";
#endif
#ifdef SYS_process_madvise
    case SYS_process_madvise: return "process_madvise";
#endif
#ifdef SYS_cachestat
    case SYS_cachestat: return "cachestat";
#endif
#ifdef SYS_swapon
    case SYS_swapon: return "swapon";
#endif
#ifdef SYS_chdir
    case SYS_chdir: return "chdir";
#endif
#ifdef SYS_readlink
    case SYS_readlink: return "readlink";
#endif
#ifdef SYS_readlinkat
    case SYS_readlinkat: return "readlinkat";
#endif
    default: return NULL;
    }
}

#endif
