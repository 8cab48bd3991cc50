package image

import (
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
)

// libraryDirs is where the loader of the common distributions looks.
func libraryDirs() []string {
	return []string{
		"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu",
		"/lib/aarch64-linux-gnu", "/usr/lib/aarch64-linux-gnu",
		"/lib64", "/usr/lib64", "/lib", "/usr/lib",
	}
}

// Libraries returns what the dynamically linked program needs to run, its loader included, as
// paths in an image mapped to paths on this machine. A static program needs nothing.
func Libraries(program string) (map[string]string, error) {
	files := map[string]string{}
	loader, err := interpreter(program)
	if err != nil {
		return nil, err
	}
	if loader != "" {
		files[loader] = loader
	}
	if err := addNeeded(program, files); err != nil {
		return nil, err
	}
	return files, nil
}

func addNeeded(program string, files map[string]string) error {
	f, err := elf.Open(program)
	if err != nil {
		return fmt.Errorf("read program %s: %w", program, err)
	}
	defer func() { _ = f.Close() }()
	names, err := f.ImportedLibraries()
	if err != nil {
		return fmt.Errorf("read libraries of %s: %w", program, err)
	}
	for _, library := range names {
		path, err := findLibrary(library)
		if err != nil {
			return fmt.Errorf("%s: %w", program, err)
		}
		if _, seen := files[path]; seen {
			continue
		}
		files[path] = path
		if err := addNeeded(path, files); err != nil {
			return err
		}
	}
	return nil
}

func findLibrary(library string) (string, error) {
	for _, dir := range libraryDirs() {
		path := filepath.Join(dir, library)
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("library %s is not installed", library)
}

// interpreter is the path of the loader that the program asks for, empty if it is static.
func interpreter(program string) (string, error) {
	f, err := elf.Open(program)
	if err != nil {
		return "", fmt.Errorf("read program %s: %w", program, err)
	}
	defer func() { _ = f.Close() }()
	section := f.Section(".interp")
	if section == nil {
		return "", nil
	}
	content, err := section.Data()
	if err != nil {
		return "", fmt.Errorf("read loader of %s: %w", program, err)
	}
	return string(content[:len(content)-1]), nil
}
