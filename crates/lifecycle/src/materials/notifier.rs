//! Change notifications of the kernel (inotify) for the paths of materials. A notification says only that something may have
//! changed, and the caller compares the files.

use std::{
    collections::{BTreeSet, HashMap},
    ffi::{OsStr, OsString},
    fs, io,
    mem::{self, MaybeUninit},
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    path::{Component, Path, PathBuf},
    time::Duration,
};

use rustix::{
    fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags},
    io::Errno,
};
use tokio::{
    io::{Interest, unix::AsyncFd},
    time::sleep,
};

/// Maximum number of watched directories and files. A dozen files in a handful of directories need about thirty.
const WATCHES_MAX: usize = 512;
/// Maximum number of symbolic links on one path, as in the kernel.
const LINKS_MAX: usize = 40;
/// Size of the buffer for events. An event has 16 bytes, and up to 256 more for a name.
const EVENTS_BYTES: usize = 4096;
/// Maximum number of events that are read at once. Events in the same buffer as the last one are read too. The maximum is a
/// quarter of the queue of the kernel (`fs.inotify.max_queued_events`). A program that writes faster than this does not block
/// the thread.
const EVENTS_MAX: usize = 4096;
/// Minimum time between two reads.
const READINGS_APART: Duration = Duration::from_millis(50);

/// Events of names that appear or disappear in a directory.
const NAMES: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVE)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF);
/// Events of the contents of a file, or of the files in a directory. Only materials are watched for these, because a log in
/// the same directory must not wake the process.
const CONTENTS: WatchFlags = NAMES
    .union(WatchFlags::MODIFY)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::CLOSE_WRITE);

/// An inotify descriptor and what it watches.
pub(crate) struct Notifier {
    inotify: AsyncFd<OwnedFd>,
    watched: HashMap<i32, Names>,
    /// Whether the kernel or [`WATCHES_MAX`] allows no more watches.
    is_full: bool,
}

/// The names in a watched directory whose events count.
#[derive(Debug)]
enum Names {
    All,
    These(BTreeSet<OsString>),
}

/// The result of reading events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadEvents {
    /// An event that counts. There may be more.
    Relevant,
    /// No event that counts, and no event is left.
    NoneLeft,
    /// No event that counts so far, and there may be more.
    More,
}

impl Notifier {
    /// A descriptor that watches nothing yet.
    ///
    /// # Errors
    /// The operating system provides no inotify descriptor. An account may have 128 inotify descriptors.
    pub(crate) fn new() -> io::Result<Self> {
        let inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        #[expect(
            deprecated,
            reason = "unsound for types that name descriptors of others; this one owns its own, and the successor is unsafe"
        )]
        let inotify = AsyncFd::with_interest(inotify, Interest::READABLE)?;
        Ok(Self {
            inotify,
            watched: HashMap::new(),
            is_full: false,
        })
    }

    /// Watches every directory, link and file that these paths lead through now, and removes all other watches.
    ///
    /// # Errors
    /// There are too many paths. The paths over the limit are not watched.
    pub(crate) fn watch<'a>(&mut self, paths: impl Iterator<Item = &'a Path>) -> Result<(), Full> {
        let before = mem::take(&mut self.watched);
        self.is_full = false;
        for path in paths {
            let end = self.follow(path);
            self.watch_contents(&end);
        }
        for gone in before.keys().filter(|key| !self.watched.contains_key(key)) {
            // A deleted file has no watch any more, which is not an error.
            let _ = inotify::remove_watch(&self.inotify, *gone);
        }
        if self.is_full { Err(Full) } else { Ok(()) }
    }

    /// Returns once an event that counts has happened since the last call.
    pub(crate) async fn changed(&self) {
        loop {
            let Ok(mut ready) = self.inotify.readable().await else {
                // The caller checks the files at intervals in any case.
                return std::future::pending().await;
            };
            match self.read() {
                ReadEvents::Relevant => return,
                ReadEvents::NoneLeft => ready.clear_ready(),
                ReadEvents::More => {}
            }
            // The kernel queues events meanwhile. If its queue overflows, it reports that, and the report counts as an event.
            sleep(READINGS_APART).await;
        }
    }

    /// Follows a path name by name, and watches each directory for the next name before that name is looked up, so that no
    /// change is missed. Returns the end of the path with all links resolved.
    fn follow(&mut self, path: &Path) -> PathBuf {
        let mut here = PathBuf::from("/");
        let mut ahead = names(path);
        let mut links = 0;
        while let Some(name) = ahead.pop() {
            if name == ".." {
                here.pop();
                continue;
            }
            self.watch_name(&here, &name);
            let next = here.join(&name);
            match fs::read_link(&next) {
                Ok(target) if links < LINKS_MAX => {
                    links += 1;
                    if target.is_absolute() {
                        here = PathBuf::from("/");
                    }
                    ahead.extend(names(&target));
                }
                _ => here = next,
            }
        }
        here
    }

    fn watch_name(&mut self, directory: &Path, name: &OsStr) {
        let Some(names) = self.add(directory, NAMES | WatchFlags::ONLYDIR) else {
            return;
        };
        if let Names::These(names) = names {
            names.insert(name.to_owned());
        }
    }

    fn watch_contents(&mut self, path: &Path) {
        let Some(names) = self.add(path, CONTENTS) else {
            return;
        };
        *names = Names::All;
        let links = fs::read_dir(path).into_iter().flatten().flatten();
        let links = links.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_symlink()));
        for link in links.take(WATCHES_MAX) {
            self.follow(&link.path());
        }
    }

    /// Adds a watch. A path that does not exist or may not be read is covered by the watch of its parent directory, and by the
    /// checks at intervals.
    fn add(&mut self, path: &Path, flags: WatchFlags) -> Option<&mut Names> {
        if self.watched.len() >= WATCHES_MAX {
            self.is_full = true;
            return None;
        }
        // The flags are added to earlier flags of the path, because a directory may be a material and also lead to another
        // material.
        match inotify::add_watch(&self.inotify, path, flags | WatchFlags::MASK_ADD) {
            Ok(watch) => Some(
                self.watched
                    .entry(watch)
                    .or_insert_with(|| Names::These(BTreeSet::new())),
            ),
            Err(error) => {
                self.is_full |= error == Errno::NOSPC;
                None
            }
        }
    }

    /// Reads events, up to the maximum.
    fn read(&self) -> ReadEvents {
        let mut buffer = [MaybeUninit::uninit(); EVENTS_BYTES];
        let mut events = Reader::new(&self.inotify, &mut buffer);
        let (mut any, mut read) = (false, 0);
        // Events that are in the buffer already are always read.
        while read < EVENTS_MAX || !events.is_buffer_empty() {
            let Ok(event) = events.next() else {
                return if any {
                    ReadEvents::Relevant
                } else {
                    ReadEvents::NoneLeft
                };
            };
            any |= self.counts(&event);
            read += 1;
        }
        if any {
            ReadEvents::Relevant
        } else {
            ReadEvents::More
        }
    }

    fn counts(&self, event: &inotify::Event<'_>) -> bool {
        if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
            return true;
        }
        // This event only says that a watch was removed. The event before it has the reason.
        if event.events().contains(ReadFlags::IGNORED) {
            return false;
        }
        match (self.watched.get(&event.wd()), event.file_name()) {
            (None, _) => false,
            (Some(Names::All), _) | (_, None) => true,
            (Some(Names::These(names)), Some(name)) => {
                names.contains(OsStr::from_bytes(name.to_bytes()))
            }
        }
    }
}

/// Not every path is watched.
#[derive(Debug, thiserror::Error)]
#[error(
    "the files need more inotify watches than the kernel (fs.inotify.max_user_watches) or the proxy ({WATCHES_MAX}) allows"
)]
pub(crate) struct Full;

/// The names of a path in reverse order.
fn names(path: &Path) -> Vec<OsString> {
    let counted = |component: Component<'_>| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    };
    path.components().rev().filter_map(counted).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use tempfile::TempDir;

    use super::*;

    /// Each change of a directory with `path/crl.pem`, and whether it must cause a check of that file.
    #[tokio::test]
    async fn only_changes_on_the_path_of_a_material_count() {
        check(true, |root| replace(&root.join("path/crl.pem")));
        check(true, |root| write(&root.join("path/crl.pem")));
        check(true, |root| remove(&root.join("path/crl.pem")));
        check(true, |root| rename(&root.join("path"), &root.join("away")));
        check(false, |root| write(&root.join("path/access.log")));
        check(false, |root| replace(&root.join("path/other.pem")));
        check(false, |root| {
            rename(&root.join("beside"), &root.join("path/beside"))
        });
    }

    #[tokio::test]
    async fn links_are_followed_and_their_old_targets_are_no_longer_watched() {
        let root = directory();
        let (link, crl) = (root.path().join("link"), root.path().join("link/crl.pem"));
        symlink("path", &link).expect("is linked");
        let mut notifier = watching(&crl);
        let watches = notifier.watched.len();
        replace(&root.path().join("path/crl.pem"));
        assert!(is_notified(&notifier), "the target of the link");
        remove(&link);
        symlink("beside", &link).expect("is linked");
        assert!(is_notified(&notifier), "the link itself");
        notifier.watch([&*crl].into_iter()).expect("there is room");
        // The new target does not exist yet, so its contents are not watched.
        assert_eq!(notifier.watched.len(), watches - 1);
        replace(&root.path().join("path/crl.pem"));
        assert!(!is_notified(&notifier), "the old target of the link");
        replace(&root.path().join("beside/crl.pem"));
        assert!(is_notified(&notifier), "the new target of the link");
    }

    #[tokio::test]
    async fn a_loop_of_links_ends_and_too_many_paths_are_an_error() {
        let root = directory();
        let link = root.path().join("link");
        symlink("link", &link).expect("is linked");
        watching(&link.join("crl.pem"));
        let many: Vec<_> = (0..WATCHES_MAX)
            .map(|n| root.path().join(n.to_string()))
            .collect();
        many.iter().for_each(|path| write(path));
        let mut notifier = Notifier::new().expect("a descriptor");
        let watched = notifier.watch(many.iter().map(PathBuf::as_path));
        assert!(watched.is_err());
        assert_eq!(notifier.watched.len(), WATCHES_MAX);
    }

    #[tokio::test]
    async fn events_over_the_maximum_are_read_by_the_next_call() {
        let root = directory();
        let notifier = watching(&root.path().join("path/crl.pem"));
        // Each file causes two events: it is created and removed.
        for n in 0..EVENTS_MAX {
            let beside = root.path().join(format!("path/{n}"));
            write(&beside);
            remove(&beside);
        }
        replace(&root.path().join("path/crl.pem"));
        let mut read = Vec::new();
        while read.last() != Some(&ReadEvents::NoneLeft) {
            read.push(notifier.read());
        }
        assert_eq!(read[0], ReadEvents::More);
        assert!(read.contains(&ReadEvents::Relevant), "{read:?}");
    }

    #[track_caller]
    fn check(counts: bool, change: impl FnOnce(&Path)) {
        let root = directory();
        let notifier = watching(&root.path().join("path/crl.pem"));
        assert!(!is_notified(&notifier));
        change(root.path());
        assert_eq!(is_notified(&notifier), counts);
    }

    fn is_notified(notifier: &Notifier) -> bool {
        notifier.read() == ReadEvents::Relevant
    }

    fn watching(path: &Path) -> Notifier {
        let mut notifier = Notifier::new().expect("a descriptor");
        notifier.watch([path].into_iter()).expect("there is room");
        notifier
    }

    fn directory() -> TempDir {
        let root = tempfile::tempdir().expect("a directory");
        for name in ["path", "beside"] {
            fs::create_dir(root.path().join(name)).expect("is made");
        }
        write(&root.path().join("path/crl.pem"));
        write(&root.path().join("path/access.log"));
        root
    }

    fn write(path: &Path) {
        fs::write(path, "text").expect("is written");
    }

    fn replace(path: &Path) {
        let new = path.with_extension("new");
        write(&new);
        rename(&new, path);
    }

    fn rename(from: &Path, to: &Path) {
        fs::rename(from, to).expect("is renamed");
    }

    fn remove(path: &Path) {
        fs::remove_file(path).expect("is removed");
    }
}
