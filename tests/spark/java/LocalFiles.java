import java.io.FileNotFoundException;
import java.io.IOException;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.attribute.PosixFilePermission;
import java.util.EnumSet;
import java.util.Set;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.ChecksumFs;
import org.apache.hadoop.fs.DelegateToFileSystem;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

/**
 * Hadoop's local files, with the two operations done in Java for which Hadoop starts a process (chmod and readlink).
 *
 * Without its native library, which PySpark does not have, that is about twenty processes for every file that a
 * micro-batch writes, and half of the time of a small batch. All else is Hadoop's own.
 */
public class LocalFiles extends LocalFileSystem {
    public LocalFiles() {
        super(new Raw());
    }

    static class Raw extends RawLocalFileSystem {
        @Override
        public void setPermission(Path path, FsPermission wanted) throws IOException {
            // Both list owner, group and others, each with read, write and execute.
            PosixFilePermission[] all = PosixFilePermission.values();
            Set<PosixFilePermission> given = EnumSet.noneOf(PosixFilePermission.class);
            for (int index = 0; index < all.length; index++) {
                if ((wanted.toShort() & (0400 >> index)) != 0) {
                    given.add(all[index]);
                }
            }
            Files.setPosixFilePermissions(pathToFile(path).toPath(), given);
        }

        @Override
        public FileStatus getFileLinkStatus(Path path) throws IOException {
            java.nio.file.Path file = pathToFile(path).toPath();
            if (Files.isSymbolicLink(file)) {
                return super.getFileLinkStatus(path);
            }
            if (!Files.exists(file, LinkOption.NOFOLLOW_LINKS)) {
                throw new FileNotFoundException("File " + path + " does not exist");
            }
            return getFileStatus(path);
        }
    }

    /** The same for Hadoop's other interface, which Spark uses for checkpoints. */
    public static class Context extends ChecksumFs {
        public Context(URI address, Configuration settings) throws Exception {
            super(new Delegate(address, settings));
        }
    }

    static class Delegate extends DelegateToFileSystem {
        Delegate(URI address, Configuration settings) throws Exception {
            super(address, new Raw(), settings, address.getScheme(), false);
        }

        @Override
        public int getUriDefaultPort() {
            return -1;
        }

        @Override
        public boolean isValidName(String name) {
            return true;
        }
    }
}
