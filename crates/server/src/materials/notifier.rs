//! Where the kernel tells that something has changed on the way to a material; what has changed is for others to see.

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

/// Directories and files watched at once. A dozen of files on a handful of ways need some thirty.
const WATCHES_MAX: usize = 512;
/// Symbolic links on one way: as many as the kernel follows.
const LINKS_MAX: usize = 40;
/// Events are read this many bytes at a time: one takes 16, and up to 256 for a name.
const EVENTS_BYTES: usize = 4096;
/// Events that are read in one go, and those that came with the last of them: a quarter of what the kernel keeps for us
/// (`fs.inotify.max_queued_events`). Whoever writes faster than we read holds nobody up.
const EVENTS_MAX: usize = 4096;
/// Time that is left between two readings of events that do not count.
const READINGS_APART: Duration = Duration::from_millis(50);

/// Names that come and go in a directory.
const NAMES: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVE)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF);
/// What becomes of a file, or of those in a directory. Asked for at the materials alone: a log written beside them is
/// nothing to wake up for.
const CONTENTS: WatchFlags = NAMES
    .union(WatchFlags::MODIFY)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::CLOSE_WRITE);

/// One inotify descriptor, and what is watched by it.
pub(crate) struct Notifier {
    inotify: AsyncFd<OwnedFd>,
    watched: HashMap<i32, Names>,
    /// Whether the kernel or our limit allows no more watches.
    is_full: bool,
}

/// The names that count in what is watched.
#[derive(Debug)]
enum Names {
    All,
    These(BTreeSet<OsString>),
}

/// What has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heard {
    /// Something that counts; there may be more.
    Something,
    /// Nothing that counts, and nothing is left to read.
    Nothing,
    /// Nothing that counts so far, of all too much.
    Part,
}

impl Notifier {
    /// One that watches nothing yet.
    ///
    /// # Errors
    /// The system gives no inotify descriptor; an account has 128 of them.
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

    /// Watches everything that finding these paths depends on, as it stands now, and lets go of the rest.
    ///
    /// # Errors
    /// There are more watches than may be; those beyond are left out.
    pub(crate) fn watch<'a>(&mut self, paths: impl Iterator<Item = &'a Path>) -> Result<(), Full> {
        let before = mem::take(&mut self.watched);
        self.is_full = false;
        for path in paths {
            let end = self.follow(path);
            self.watch_contents(&end);
        }
        for gone in before.keys().filter(|key| !self.watched.contains_key(key)) {
            // What was deleted has no watch any more.
            let _ = inotify::remove_watch(&self.inotify, *gone);
        }
        if self.is_full { Err(Full) } else { Ok(()) }
    }

    /// Returns once something that counts has happened since it was asked last.
    pub(crate) async fn changed(&self) {
        loop {
            let Ok(mut ready) = self.inotify.readable().await else {
                // Whoever looks from time to time goes on doing so.
                return std::future::pending().await;
            };
            match self.read() {
                Heard::Something => return,
                Heard::Nothing => ready.clear_ready(),
                Heard::Part => {}
            }
            // What comes meanwhile waits with the kernel; where that is too much for it, it says so, and that counts.
            sleep(READINGS_APART).await;
        }
    }

    /// Goes a path name by name, watching each directory for its next name before that is looked up: so nothing that
    /// happens on the way is missed. Yields where it ends, links resolved.
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

    /// What is not there, or closed to us, is told by the directory above it, or seen by looking.
    fn add(&mut self, path: &Path, flags: WatchFlags) -> Option<&mut Names> {
        if self.watched.len() >= WATCHES_MAX {
            self.is_full = true;
            return None;
        }
        // Added to what was asked before: one directory may be on the way to one material and another material itself.
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

    /// Reads what has happened, within a bound.
    fn read(&self) -> Heard {
        let mut buffer = [MaybeUninit::uninit(); EVENTS_BYTES];
        let mut events = Reader::new(&self.inotify, &mut buffer);
        let (mut any, mut read) = (false, 0);
        // What was taken from the kernel is looked at whole.
        while read < EVENTS_MAX || !events.is_buffer_empty() {
            let Ok(event) = events.next() else {
                return if any {
                    Heard::Something
                } else {
                    Heard::Nothing
                };
            };
            any |= self.counts(&event);
            read += 1;
        }
        if any { Heard::Something } else { Heard::Part }
    }

    fn counts(&self, event: &inotify::Event<'_>) -> bool {
        if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
            return true;
        }
        // The word that a watch is gone says nothing that the event before it did not say.
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

/// Not everything is watched.
#[derive(Debug, thiserror::Error)]
#[error(
    "the files need more inotify watches than the kernel (fs.inotify.max_user_watches) or the proxy ({WATCHES_MAX}) allows"
)]
pub(crate) struct Full;

/// The names of a path, the first one last.
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

    /// What is done to a directory with `way/list.pem`, and whether that is a reason to look at the list.
    #[tokio::test]
    async fn only_what_happens_on_the_way_to_a_material_counts() {
        check(true, |root| replace(&root.join("way/list.pem")));
        check(true, |root| write(&root.join("way/list.pem")));
        check(true, |root| remove(&root.join("way/list.pem")));
        check(true, |root| rename(&root.join("way"), &root.join("away")));
        check(false, |root| write(&root.join("way/access.log")));
        check(false, |root| replace(&root.join("way/other.pem")));
        check(false, |root| {
            rename(&root.join("beside"), &root.join("way/beside"))
        });
    }

    #[tokio::test]
    async fn links_are_followed_to_their_end_and_let_go_of_with_it() {
        let root = estate();
        let (link, list) = (root.path().join("link"), root.path().join("link/list.pem"));
        symlink("way", &link).expect("is linked");
        let mut notifier = watching(&list);
        let watches = notifier.watched.len();
        replace(&root.path().join("way/list.pem"));
        assert!(hears(&notifier), "where the link leads");
        remove(&link);
        symlink("beside", &link).expect("is linked");
        assert!(hears(&notifier), "the link itself");
        notifier.watch([&*list].into_iter()).expect("there is room");
        // There is no list yet, so nothing is watched for what becomes of it.
        assert_eq!(notifier.watched.len(), watches - 1);
        replace(&root.path().join("way/list.pem"));
        assert!(!hears(&notifier), "where it led before");
        replace(&root.path().join("beside/list.pem"));
        assert!(hears(&notifier), "where it leads now");
    }

    #[tokio::test]
    async fn a_ring_of_links_ends_and_more_than_may_be_watched_is_said() {
        let root = estate();
        let ring = root.path().join("ring");
        symlink("ring", &ring).expect("is linked");
        watching(&ring.join("list.pem"));
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
    async fn more_than_is_read_in_one_go_is_left_for_the_next_and_nothing_of_it_is_lost() {
        let root = estate();
        let notifier = watching(&root.path().join("way/list.pem"));
        // Each makes two events: it comes and it goes.
        for n in 0..EVENTS_MAX {
            let beside = root.path().join(format!("way/{n}"));
            write(&beside);
            remove(&beside);
        }
        replace(&root.path().join("way/list.pem"));
        let mut heard = Vec::new();
        while heard.last() != Some(&Heard::Nothing) {
            heard.push(notifier.read());
        }
        assert_eq!(heard[0], Heard::Part);
        assert!(heard.contains(&Heard::Something), "{heard:?}");
    }

    #[track_caller]
    fn check(counts: bool, change: impl FnOnce(&Path)) {
        let root = estate();
        let notifier = watching(&root.path().join("way/list.pem"));
        assert!(!hears(&notifier));
        change(root.path());
        assert_eq!(hears(&notifier), counts);
    }

    fn hears(notifier: &Notifier) -> bool {
        notifier.read() == Heard::Something
    }

    fn watching(path: &Path) -> Notifier {
        let mut notifier = Notifier::new().expect("a descriptor");
        notifier.watch([path].into_iter()).expect("there is room");
        notifier
    }

    fn estate() -> TempDir {
        let root = tempfile::tempdir().expect("a directory");
        for name in ["way", "beside"] {
            fs::create_dir(root.path().join(name)).expect("is made");
        }
        write(&root.path().join("way/list.pem"));
        write(&root.path().join("way/access.log"));
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
