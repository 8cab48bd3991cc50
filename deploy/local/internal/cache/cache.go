// Package cache keeps built and fetched files by name and key, with a checksum of each that is
// verified on use. What is half-written or damaged counts as missing and is made again. The
// folder may be shared by several processes: makers of one name take turns by a file lock.
package cache

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// ErrMissing says that an artefact is not there, or not whole.
var ErrMissing = errors.New("not in the cache")

// keep is how many keys of one name stay after a new one was made: enough for a few clones
// at different versions without growing for ever.
const keep = 4

// Store is a cache folder. The zero value is not usable; see Open. It is safe for concurrent
// use, by several processes too.
type Store struct {
	root    string
	waiting func(name string)
}

// Artefact names a set of files. Key must change whenever the content should; Files are paths
// relative to the artefact's folder, and exactly those are checked.
type Artefact struct {
	Name  string
	Key   string
	Files []string
}

// Root is ${XDG_CACHE_HOME:-$HOME/.cache}/skipper.
func Root() (string, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the cache folder (set HOME or XDG_CACHE_HOME): %w", err)
	}
	return filepath.Join(base, "skipper"), nil
}

// Open makes the folders of the store at root if they are not there. waiting is called, again
// and again, while another process holds the lock of that name.
func Open(root string, waiting func(name string)) (*Store, error) {
	for _, dir := range []string{"artefacts", "bin", "locks", "tmp"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			return nil, fmt.Errorf("make cache folder: %w", err)
		}
	}
	s := &Store{root: root, waiting: waiting}
	s.sweep()
	return s, nil
}

// sweep removes temporary files that a killed process left; none is needed for a day.
func (s *Store) sweep() {
	entries, err := os.ReadDir(s.Path("tmp"))
	if err != nil {
		return
	}
	for _, e := range entries {
		if changed := modified(e); !changed.IsZero() && time.Since(changed) > 24*time.Hour {
			_ = os.RemoveAll(s.Path("tmp", e.Name()))
		}
	}
}

// Path joins elements to the root of the store.
func (s *Store) Path(elements ...string) string {
	return filepath.Join(append([]string{s.root}, elements...)...)
}

// Find returns the folder of a whole artefact, or an error that wraps ErrMissing.
func (s *Store) Find(a Artefact) (string, error) {
	dir := s.dir(a)
	if err := verify(dir, a.Files); err != nil {
		return "", fmt.Errorf("%s %s: %w: %w", a.Name, a.Key, ErrMissing, err)
	}
	now := time.Now()
	_ = os.Chtimes(dir, now, now) // only the order of forget depends on it
	return dir, nil
}

// Ensure returns the folder of the artefact, calling make to fill an empty folder if it is
// missing. One process at a time makes a given name; the others wait and then find it.
func (s *Store) Ensure(ctx context.Context, a Artefact, make func(ctx context.Context, dir string) error) (string, error) {
	if dir, err := s.Find(a); err == nil {
		return dir, nil
	}
	release, err := s.Lock(ctx, a.Name)
	if err != nil {
		return "", err
	}
	defer release()
	if dir, err := s.Find(a); err == nil {
		return dir, nil
	}
	if err := s.create(ctx, a, make); err != nil {
		return "", err
	}
	s.forget(a.Name)
	return s.Find(a)
}

// create fills a temporary folder and renames it, so that a crash leaves either nothing or
// the whole artefact. The caller holds the lock of the name.
func (s *Store) create(ctx context.Context, a Artefact, make func(context.Context, string) error) error {
	parent := s.Path("artefacts", a.Name)
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return fmt.Errorf("make folder of %s: %w", a.Name, err)
	}
	temp := filepath.Join(parent, ".making")
	if err := os.RemoveAll(temp); err != nil {
		return fmt.Errorf("remove half-made %s: %w", a.Name, err)
	}
	if err := os.Mkdir(temp, 0o755); err != nil {
		return fmt.Errorf("make folder of %s: %w", a.Name, err)
	}
	defer func() { _ = os.RemoveAll(temp) }()
	if err := make(ctx, temp); err != nil {
		return err
	}
	if err := seal(temp, a.Files); err != nil {
		return fmt.Errorf("record checksums of %s: %w", a.Name, err)
	}
	return replace(temp, s.dir(a))
}

func (s *Store) dir(a Artefact) string { return s.Path("artefacts", a.Name, a.Key) }

// replace puts temp in the place of dir, whatever was there.
func replace(temp, dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove damaged artefact: %w", err)
	}
	if err := os.Rename(temp, dir); err != nil {
		return fmt.Errorf("put artefact in place: %w", err)
	}
	return syncPath(filepath.Dir(dir))
}

// forget removes all but the most recently used keys of a name. What cannot be removed stays:
// it costs space only.
func (s *Store) forget(name string) {
	entries, err := os.ReadDir(s.Path("artefacts", name))
	if err != nil {
		return
	}
	slices.SortFunc(entries, func(a, b os.DirEntry) int { return modified(b).Compare(modified(a)) })
	for i, e := range entries {
		if i >= keep {
			_ = os.RemoveAll(s.Path("artefacts", name, e.Name()))
		}
	}
}

func modified(e os.DirEntry) time.Time {
	info, err := e.Info()
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

// Link makes bin/name a symbolic link to target and returns its path. The change is atomic.
func (s *Store) Link(name, target string) (string, error) {
	link := s.Path("bin", name)
	if current, err := os.Readlink(link); err == nil && current == target {
		return link, nil
	}
	temp := fmt.Sprintf("%s.%d", link, os.Getpid())
	_ = os.Remove(temp)
	if err := os.Symlink(target, temp); err != nil {
		return "", fmt.Errorf("link %s: %w", name, err)
	}
	if err := os.Rename(temp, link); err != nil {
		return "", fmt.Errorf("link %s: %w", name, err)
	}
	return link, nil
}
