/* SIGINT, SIGTERM and SIGHUP ask for a clean stop: the loop finishes its step, saves and exits 130,
 * 143 or 129. A second SIGINT or SIGTERM ends the process at once with its own status, for when
 * saving itself is what hangs. SIGHUP is never that second one: shells, the kernel and systemd send
 * it beside other signals, or twice, when a terminal or a session goes. SIGUSR1 and SIGUSR2 are
 * taken for SIGTERM and SIGINT: mpirun and Slurm pass these on. */
#ifndef HALLEY_OS_SIGNAL_H
#define HALLEY_OS_SIGNAL_H

/* Start to watch. A signal that was ignored when the program began (nohup, a shell's background
 * job) stays ignored. Call it on the main thread, which is where the system delivers signals to: it
 * also sets that thread's signal stack. */
void hl_signal_watch(void);
/* Go back to what was before, and forget what came. */
void hl_signal_unwatch(void);
/* The signal that asked to stop since watching began; 0: none. One that follows a SIGHUP takes its
 * place. */
enum {
    HL_SIGNAL_HUP = 1,
    HL_SIGNAL_INT = 2,
    HL_SIGNAL_KILL = 9,
    HL_SIGNAL_USR1 = 10,
    HL_SIGNAL_SEGV = 11,
    HL_SIGNAL_USR2 = 12,
    HL_SIGNAL_TERM = 15,
    HL_SIGNAL_STOP = 19
}; /* Linux's numbers; a program that stopped for one exits 128 + number */
int hl_signal_pending(void);

/* End this process as the kernel's own SIGKILL would: nothing runs any more. For tests of what
 * others do then. Does not return. */
void hl_signal_kill_self(void);
/* Send this process another one. */
void hl_signal_raise(int number);

/* The calling thread, and those it starts, take none of the watched signals: for threads that are
 * ranks, beside the main one. */
void hl_signal_avoid(void);

/* A write to a pipe that nobody reads fails with EPIPE instead of ending the program. */
void hl_signal_ignore_pipe(void);

#endif
