package cache

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// sumsName is a file in the format of sha256sum, so that a person can check it by hand.
const sumsName = "SHA256SUMS"

// seal writes the checksums of files beside them and forces everything to the disk.
func seal(dir string, files []string) error {
	var sums bytes.Buffer
	for _, name := range files {
		sum, err := Sum(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%s  %s\n", sum, name)
		if err := syncPath(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	path := filepath.Join(dir, sumsName)
	if err := os.WriteFile(path, sums.Bytes(), 0o644); err != nil {
		return err
	}
	if err := syncPath(path); err != nil {
		return err
	}
	return syncPath(dir)
}

// verify tells why dir does not hold exactly these files with the recorded content, or nil.
func verify(dir string, files []string) error {
	want, err := readSums(filepath.Join(dir, sumsName))
	if err != nil {
		return err
	}
	for _, name := range files {
		sum, err := Sum(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		if want[name] != sum {
			return fmt.Errorf("checksum of %s differs from the record", name)
		}
	}
	return nil
}

func readSums(path string) (map[string]string, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	sums := map[string]string{}
	lines := bufio.NewScanner(bytes.NewReader(content))
	for lines.Scan() {
		if sum, name, ok := strings.Cut(lines.Text(), "  "); ok {
			sums[name] = sum
		}
	}
	return sums, lines.Err()
}

// Sum is the SHA-256 of a file's content in hexadecimal digits.
func Sum(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("read %s: %w", path, err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// syncPath forces a file or folder to the disk.
func syncPath(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if err := f.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", path, err)
	}
	return nil
}
