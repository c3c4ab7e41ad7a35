/* The folder of a run: may it be used, what is written beside checkpoints, and what overwriting
 * removes. */
#ifndef HALLEY_TRAIN_FOLDER_H
#define HALLEY_TRAIN_FOLDER_H

#include "halley/mem.h"
#include "halley/status.h"
#include "os/fs.h"
#include "os/lock.h"

bool hl_is_folder(struct hl_fs *fs, const char *path);
/* Is the path below the folder, as they are spelled? */
bool hl_is_inside(const char *path, const char *folder);
/* May a run use the folder? One that holds a run only when may_be_used. Changes nothing. errors
 * HL_E_USER */
enum hl_status hl_run_folder_check(struct hl_fs *fs, const char *path, bool may_be_used,
                                   struct hl_diag *diag) HL_MUST_CHECK;
/* Take the folder for this run alone, when it exists: two at once would cut and overwrite each
 * other's files. Where there can be no lock (lock->file stays -1), the run goes on without.
 * lock    owner: caller, hl_lock_release; one that is held already is left alone
 * errors  HL_E_USER: another run has it, with its process id */
enum hl_status hl_run_folder_lock(struct hl_fs *fs, const char *path, struct hl_lock *lock,
                                  struct hl_diag *diag) HL_MUST_CHECK;
/* Make the folder and its parents if need be. */
enum hl_status hl_run_folder_make(struct hl_fs *fs, const char *path,
                                  struct hl_diag *diag) HL_MUST_CHECK;
/* Make the folder and its parents if need be. A folder that holds a run is refused unless going_on;
 * with overwrite the run's own files are removed first, and nothing else. */
enum hl_status hl_run_folder_prepare(struct hl_fs *fs, const char *path, bool going_on,
                                     bool overwrite, struct hl_diag *diag) HL_MUST_CHECK;
/* Write a small file whole: aside, sync, rename. */
enum hl_status hl_run_folder_write(struct hl_fs *fs, const char *folder, const char *name,
                                   const char *text, struct hl_diag *diag) HL_MUST_CHECK;

#endif
