//! The simulated directory tree: what its process sees, what is durable, and the name operations between the two in
//! the order they happened, of which a crash keeps a prefix per directory.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Component, Path, PathBuf};

use super::content::FileData;
use crate::sim_rng::SimRng;

pub(super) type Ino = u64;

/// The root directory, which is always there.
const ROOT: Ino = 0;

#[derive(Clone)]
pub(super) struct Tree {
    inodes: BTreeMap<Ino, Inode>,
    ino_next: Ino,
    pending: Vec<NameChange>,
}

#[derive(Clone)]
pub(super) struct Inode {
    pub(super) body: Body,
    pub(super) modified_ms: i64,
    /// Names that lead here now.
    links: u32,
    /// Open files.
    pub(super) handles: u32,
}

#[derive(Clone)]
pub(super) enum Body {
    File(FileData),
    Dir(DirData),
}

#[derive(Clone, Default)]
pub(super) struct DirData {
    visible: BTreeMap<String, Ino>,
    durable: BTreeMap<String, Ino>,
}

#[derive(Clone)]
struct NameChange {
    sequence: u64,
    remove: Option<(Ino, String)>,
    insert: Option<(Ino, String, Ino)>,
}

impl NameChange {
    fn dirs(&self) -> impl Iterator<Item = Ino> {
        let removed = self.remove.as_ref().map(|(dir, _)| *dir);
        let inserted = self.insert.as_ref().map(|(dir, ..)| *dir);
        removed.into_iter().chain(inserted)
    }
}

impl Tree {
    pub(super) fn new() -> Self {
        let root = Inode {
            body: Body::Dir(DirData::default()),
            modified_ms: 0,
            links: 1,
            handles: 0,
        };
        Self {
            inodes: BTreeMap::from([(ROOT, root)]),
            ino_next: ROOT + 1,
            pending: Vec::new(),
        }
    }

    pub(super) fn get(&self, ino: Ino) -> io::Result<&Inode> {
        self.inodes
            .get(&ino)
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    pub(super) fn file(&mut self, ino: Ino) -> io::Result<&mut FileData> {
        match self.inodes.get_mut(&ino).map(|inode| &mut inode.body) {
            Some(Body::File(file)) => Ok(file),
            Some(Body::Dir(_)) => Err(io::ErrorKind::IsADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    pub(super) fn touch(&mut self, ino: Ino, now_ms: i64) {
        if let Some(inode) = self.inodes.get_mut(&ino) {
            inode.modified_ms = now_ms;
        }
    }

    pub(super) fn opened(&mut self, ino: Ino) {
        if let Some(inode) = self.inodes.get_mut(&ino) {
            inode.handles += 1;
        }
    }

    /// One open file fewer.
    pub(super) fn closed(&mut self, ino: Ino) {
        if let Some(inode) = self.inodes.get_mut(&ino) {
            inode.handles = inode.handles.saturating_sub(1);
        }
    }

    /// Blocks of all files that a name or an open file still holds.
    pub(super) fn charged_blocks(&self) -> u64 {
        let held = self
            .inodes
            .values()
            .filter(|inode| inode.links > 0 || inode.handles > 0);
        held.map(|inode| match &inode.body {
            Body::File(file) => file.charged_blocks(),
            Body::Dir(_) => 0,
        })
        .sum()
    }

    pub(super) fn lookup(&self, path: &Path) -> io::Result<Ino> {
        let mut ino = ROOT;
        for name in components(path)? {
            let next = self.dir(ino)?.visible.get(name);
            ino = *next.ok_or(io::ErrorKind::NotFound)?;
        }
        Ok(ino)
    }

    pub(super) fn lookup_dir(&self, path: &Path) -> io::Result<Ino> {
        let ino = self.lookup(path)?;
        self.dir(ino)?;
        Ok(ino)
    }

    fn parent<'p>(&self, path: &'p Path) -> io::Result<(Ino, &'p str)> {
        let names = components(path)?;
        let (name, dirs) = names.split_last().ok_or(io::ErrorKind::InvalidInput)?;
        let mut ino = ROOT;
        for dir in dirs {
            ino = *self.dir(ino)?.visible.get(*dir).ok_or(io::ErrorKind::NotFound)?;
        }
        self.dir(ino)?;
        Ok((ino, name))
    }

    fn dir(&self, ino: Ino) -> io::Result<&DirData> {
        match &self.get(ino)?.body {
            Body::Dir(dir) => Ok(dir),
            Body::File(_) => Err(io::ErrorKind::NotADirectory.into()),
        }
    }

    fn dir_mut(&mut self, ino: Ino) -> Option<&mut DirData> {
        match self.inodes.get_mut(&ino).map(|inode| &mut inode.body) {
            Some(Body::Dir(dir)) => Some(dir),
            _ => None,
        }
    }

    /// The names in a directory with what they lead to, in order.
    pub(super) fn entries(&self, ino: Ino) -> io::Result<impl Iterator<Item = (&String, &Inode)>> {
        let dir = self.dir(ino)?;
        Ok(dir
            .visible
            .iter()
            .filter_map(|(name, ino)| Some((name, self.inodes.get(ino)?))))
    }

    pub(super) fn create_file(&mut self, path: &Path, sequence: u64, now_ms: i64) -> io::Result<Ino> {
        let (dir, name) = self.parent(path)?;
        if self.dir(dir)?.visible.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        Ok(self.add(dir, name, Body::File(FileData::default()), sequence, now_ms))
    }

    pub(super) fn create_dirs(&mut self, path: &Path, sequence: u64, now_ms: i64) -> io::Result<()> {
        let mut ino = ROOT;
        for name in components(path)? {
            ino = match self.dir(ino)?.visible.get(name) {
                Some(next) => *next,
                None => self.add(ino, name, Body::Dir(DirData::default()), sequence, now_ms),
            };
        }
        self.dir(ino).map(|_| ())
    }

    fn add(&mut self, dir: Ino, name: &str, body: Body, sequence: u64, now_ms: i64) -> Ino {
        let ino = self.ino_next;
        self.ino_next += 1;
        let inode = Inode {
            body,
            modified_ms: now_ms,
            links: 0,
            handles: 0,
        };
        self.inodes.insert(ino, inode);
        self.change(sequence, None, Some((dir, name.to_owned(), ino)));
        ino
    }

    pub(super) fn remove_file(&mut self, path: &Path, sequence: u64) -> io::Result<()> {
        let ino = self.lookup(path)?;
        if matches!(self.get(ino)?.body, Body::Dir(_)) {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        let (dir, name) = self.parent(path)?;
        self.change(sequence, Some((dir, name.to_owned())), None);
        Ok(())
    }

    pub(super) fn remove_dir_all(&mut self, path: &Path, sequence: u64) -> io::Result<()> {
        let ino = self.lookup(path)?;
        self.dir(ino)?;
        let (dir, name) = self.parent(path)?;
        self.empty(ino, sequence);
        self.change(sequence, Some((dir, name.to_owned())), None);
        Ok(())
    }

    fn empty(&mut self, ino: Ino, sequence: u64) {
        let names: Vec<(String, Ino)> = match self.dir(ino) {
            Ok(dir) => dir
                .visible
                .iter()
                .map(|(name, ino)| (name.clone(), *ino))
                .collect(),
            Err(_) => return,
        };
        for (name, child) in names {
            self.empty(child, sequence);
            self.change(sequence, Some((ino, name)), None);
        }
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path, sequence: u64) -> io::Result<()> {
        let ino = self.lookup(from)?;
        if to.starts_with(from) && to != from {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let source = self.parent(from)?;
        let target = self.parent(to)?;
        if let Some(existing) = self.dir(target.0)?.visible.get(target.1) {
            if *existing == ino {
                return Ok(());
            }
            let is_dir = matches!(self.get(ino)?.body, Body::Dir(_));
            match &self.get(*existing)?.body {
                Body::Dir(_) if !is_dir => return Err(io::ErrorKind::IsADirectory.into()),
                Body::File(_) if is_dir => return Err(io::ErrorKind::NotADirectory.into()),
                Body::Dir(dir) if !dir.visible.is_empty() => {
                    return Err(io::ErrorKind::DirectoryNotEmpty.into());
                }
                _ => {}
            }
        }
        let (remove, insert) = (
            (source.0, source.1.to_owned()),
            (target.0, target.1.to_owned(), ino),
        );
        self.change(sequence, Some(remove), Some(insert));
        Ok(())
    }

    /// Applies a change to what is visible and remembers that it is not durable.
    fn change(&mut self, sequence: u64, remove: Option<(Ino, String)>, insert: Option<(Ino, String, Ino)>) {
        if let Some((dir, name)) = &remove {
            let gone = self.dir_mut(*dir).and_then(|dir| dir.visible.remove(name));
            self.unlink(gone);
        }
        if let Some((dir, name, ino)) = &insert {
            let replaced = self
                .dir_mut(*dir)
                .and_then(|dir| dir.visible.insert(name.clone(), *ino));
            if let Some(inode) = self.inodes.get_mut(ino) {
                inode.links += 1;
            }
            self.unlink(replaced);
        }
        self.pending.push(NameChange {
            sequence,
            remove,
            insert,
        });
    }

    fn unlink(&mut self, ino: Option<Ino>) {
        if let Some(inode) = ino.and_then(|ino| self.inodes.get_mut(&ino)) {
            inode.links = inode.links.saturating_sub(1);
        }
    }

    /// Makes the names of `dir` durable that changed up to `sequence`, with the changes of other directories that
    /// must have happened before them.
    pub(super) fn sync_dir(&mut self, dir: Ino, sequence: u64) {
        let mut dirs = BTreeSet::from([dir]);
        let mut wanted = vec![false; self.pending.len()];
        for (want, change) in wanted.iter_mut().zip(&self.pending).rev() {
            if change.sequence <= sequence && change.dirs().any(|dir| dirs.contains(&dir)) {
                *want = true;
                dirs.extend(change.dirs());
            }
        }
        let pending = std::mem::take(&mut self.pending);
        for (change, want) in pending.into_iter().zip(wanted) {
            if want {
                self.make_durable(&change);
            } else {
                self.pending.push(change);
            }
        }
        self.collect_garbage();
    }

    /// Makes every name change and every file's data up to `sequence` durable: all, or what is below one directory.
    pub(super) fn sync_all(&mut self, sequence: u64, within: Option<Ino>) {
        let within = within.map(|dir| self.below(dir));
        let is_within = |ino: Ino| within.as_ref().is_none_or(|below| below.contains(&ino));
        let pending = std::mem::take(&mut self.pending);
        for change in pending {
            if change.sequence <= sequence && change.dirs().any(is_within) {
                self.make_durable(&change);
            } else {
                self.pending.push(change);
            }
        }
        for (ino, inode) in &mut self.inodes {
            if let Body::File(file) = &mut inode.body
                && is_within(*ino)
            {
                file.sync(sequence);
            }
        }
        self.collect_garbage();
    }

    /// The directory and all that a name below it leads to, now or after a crash.
    fn below(&self, dir: Ino) -> BTreeSet<Ino> {
        let mut below = BTreeSet::from([dir]);
        let mut dirs = vec![dir];
        while let Some(dir) = dirs.pop() {
            let Ok(dir) = self.dir(dir) else { continue };
            for ino in dir.visible.values().chain(dir.durable.values()) {
                if below.insert(*ino) {
                    dirs.push(*ino);
                }
            }
        }
        below
    }

    fn make_durable(&mut self, change: &NameChange) {
        if let Some((dir, name)) = &change.remove
            && let Some(dir) = self.dir_mut(*dir)
        {
            dir.durable.remove(name);
        }
        if let Some((dir, name, ino)) = &change.insert
            && let Some(dir) = self.dir_mut(*dir)
        {
            dir.durable.insert(name.clone(), *ino);
        }
    }

    /// What a power loss leaves: of the pending name changes a prefix per directory (one directory's changes are
    /// journalled in order; a rename between two directories is one change), of each file what
    /// [`FileData::crash`] says.
    pub(super) fn crash(&mut self, rng: &mut SimRng, garbage_tails: bool) {
        let mut stopped = BTreeSet::new();
        let keep_ppm = [0, 500_000, 900_000, 1_000_000][rng.index(4)];
        for change in std::mem::take(&mut self.pending) {
            let kept = change.dirs().all(|dir| !stopped.contains(&dir)) && rng.chance(keep_ppm);
            if kept {
                self.make_durable(&change);
            } else {
                stopped.extend(change.dirs());
            }
        }
        for inode in self.inodes.values_mut() {
            inode.handles = 0;
            match &mut inode.body {
                Body::File(file) => file.crash(rng, garbage_tails),
                Body::Dir(dir) => dir.visible = dir.durable.clone(),
            }
        }
        self.recount();
    }

    /// What the end of the process alone leaves: everything, with no file open.
    pub(super) fn close_all(&mut self) {
        for inode in self.inodes.values_mut() {
            inode.handles = 0;
        }
        self.collect_garbage();
    }

    /// Counts links anew and drops what no name leads to.
    fn recount(&mut self) {
        let mut links: BTreeMap<Ino, u32> = BTreeMap::from([(ROOT, 1)]);
        for inode in self.inodes.values() {
            if let Body::Dir(dir) = &inode.body {
                for ino in dir.visible.values() {
                    *links.entry(*ino).or_default() += 1;
                }
            }
        }
        for (ino, inode) in &mut self.inodes {
            inode.links = links.get(ino).copied().unwrap_or(0);
        }
        self.collect_garbage();
    }

    /// Drops inodes that no name, durable name, pending change or open file leads to.
    fn collect_garbage(&mut self) {
        let mut live = BTreeSet::new();
        let mut todo = vec![ROOT];
        todo.extend(
            self.inodes
                .iter()
                .filter(|(_, i)| i.handles > 0)
                .map(|(ino, _)| *ino),
        );
        todo.extend(
            self.pending
                .iter()
                .filter_map(|c| c.insert.as_ref())
                .map(|(_, _, ino)| *ino),
        );
        while let Some(ino) = todo.pop() {
            if !live.insert(ino) {
                continue;
            }
            if let Ok(dir) = self.dir(ino) {
                todo.extend(dir.visible.values().chain(dir.durable.values()));
            }
        }
        self.inodes.retain(|ino, _| live.contains(ino));
    }

    /// Every file and directory by path, in order: for tests and error reports.
    pub(super) fn paths(&self) -> Vec<PathBuf> {
        let mut out = Vec::new();
        let mut todo = vec![(ROOT, PathBuf::from("/"))];
        while let Some((ino, path)) = todo.pop() {
            if let Ok(dir) = self.dir(ino) {
                todo.extend(dir.visible.iter().map(|(name, ino)| (*ino, path.join(name))));
            }
            out.push(path);
        }
        out.sort();
        out
    }
}

/// The names of an absolute path.
fn components(path: &Path) -> io::Result<Vec<&str>> {
    let mut names = Vec::new();
    if !path.is_absolute() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for component in path.components() {
        match component {
            Component::RootDir => {}
            Component::Normal(name) => {
                names.push(name.to_str().ok_or(io::ErrorKind::InvalidInput)?);
            }
            _ => return Err(io::ErrorKind::InvalidInput.into()),
        }
    }
    Ok(names)
}
